//! A request's body on its way to the upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spile_listener::{ClientBody, Paced};
use tokio::time::Instant;

use super::activity::{Movement, SharedIdle};
use crate::forward::headers::sanitize;

/// A body that is read from the client only as fast as the upstream takes it, up to a size and within a silence.
#[derive(Debug)]
pub(crate) struct Upload(Option<Stream>);

#[derive(Debug)]
struct Stream {
    body: ClientBody,
    bytes_left: u64,
    idle: SharedIdle,
    meter: Arc<Meter>,
}

/// What became of an upload, and what of its time was the client's.
#[derive(Debug)]
pub(crate) struct Meter {
    frames: AtomicU32,
    state: AtomicU8,
    movement: Movement,
    begun: Instant,
    /// Whether the client has yet to send what comes next.
    waiting: AtomicBool,
    /// When the body last moved, or when the wait for the client began. Since `begun`.
    turned_us: AtomicU64,
    /// How long the client was waited for so far, not counting the present wait.
    waited_us: AtomicU64,
}

const SOUND: u8 = 0;
const TOO_LARGE: u8 = 1;
const STALLED: u8 = 2;
const BROKEN: u8 = 3;

/// Why a body did not reach the upstream whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum UploadFailure {
    #[error("the body is larger than the route takes")]
    TooLarge,
    #[error("the client stopped sending its body")]
    Stalled,
    #[error("the client's body broke off")]
    Broken,
}

impl Upload {
    /// No body at all.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Whether the next piece has yet to come from the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.as_ref().is_some_and(|stream| stream.meter.is_waiting())
    }

    pub(crate) fn streamed(body: ClientBody, max_bytes: u64, max_idle: Duration, meter: Arc<Meter>) -> Self {
        let idle = SharedIdle::after(max_idle, meter.movement());
        Self(Some(Stream { body, bytes_left: max_bytes, idle, meter }))
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            frames: AtomicU32::new(0),
            state: AtomicU8::new(SOUND),
            movement: Movement::of_two(),
            begun: Instant::now(),
            waiting: AtomicBool::new(false),
            turned_us: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
        }
    }
}

impl Meter {
    /// Whether the next piece has yet to come from the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How long the client has been waited for, not counting the present wait.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    /// How long the body has not moved.
    pub(crate) fn still_for(&self) -> Duration {
        let turned = Duration::from_micros(self.turned_us.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(turned)
    }

    /// The client has yet to send more.
    fn wait(&self) {
        if !self.waiting.swap(true, Ordering::Relaxed) {
            self.turned_us.store(self.now_us(), Ordering::Relaxed);
        }
    }

    /// A piece of the body has come.
    fn step(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let now_us = self.now_us();
        let turned_us = self.turned_us.swap(now_us, Ordering::Relaxed);
        if self.waiting.swap(false, Ordering::Relaxed) {
            self.waited_us.fetch_add(now_us.saturating_sub(turned_us), Ordering::Relaxed);
        }
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Counts up while the body moves.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// What the answer's body shares with this one.
    pub(crate) fn movement(&self) -> Movement {
        self.movement.clone()
    }

    pub(crate) fn failure(&self) -> Option<UploadFailure> {
        match self.state.load(Ordering::Relaxed) {
            TOO_LARGE => Some(UploadFailure::TooLarge),
            STALLED => Some(UploadFailure::Stalled),
            BROKEN => Some(UploadFailure::Broken),
            _ => None,
        }
    }
}

impl Stream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadFailure>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            self.meter.wait();
            ready!(self.idle.poll_over(cx));
            return Poll::Ready(Some(Err(self.failed(STALLED, UploadFailure::Stalled))));
        };
        self.idle.stir();
        self.meter.step();
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_trailers() => Some(Ok(without_claims(frame))),
            Some(Ok(frame)) => Some(self.count(frame)),
            Some(Err(_)) => Some(Err(self.failed(BROKEN, UploadFailure::Broken))),
            None => None,
        })
    }

    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, UploadFailure> {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        match self.bytes_left.checked_sub(bytes) {
            None => Err(self.failed(TOO_LARGE, UploadFailure::TooLarge)),
            Some(left) => {
                self.bytes_left = left;
                Ok(frame)
            }
        }
    }

    fn failed(&self, state: u8, failure: UploadFailure) -> UploadFailure {
        debug_assert_ne!(state, SOUND, "a failure says what failed");
        self.meter.state.store(state, Ordering::Relaxed);
        failure
    }
}

/// Trailers without what a client could not have said in the header either.
fn without_claims(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            sanitize::clean_trailers(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

impl Paced for Upload {
    /// It is read as it arrives.
    fn read_at_most(&mut self, _bytes: usize) {}
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadFailure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadFailure>>> {
        match &mut self.0 {
            None => Poll::Ready(None),
            Some(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|stream| stream.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |stream| stream.body.size_hint())
    }
}
