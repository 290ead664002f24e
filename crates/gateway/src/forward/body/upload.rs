//! A request's body on its way to the upstream.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spile_listener::{ClientBody, PacedBody};
use tokio::time::Instant;

use super::activity::{Activity, SharedIdleTimer};
use crate::forward::headers::sanitize;

/// A body that is read only as fast as the upstream takes it, with a limit on its size and an idle timeout.
#[derive(Debug)]
pub(crate) struct Upload(Option<UploadStream>);

#[derive(Debug)]
struct UploadStream {
    body: ClientBody,
    bytes_left: u64,
    idle: SharedIdleTimer,
    progress: Arc<UploadProgress>,
}

/// How far an upload has come, whether it failed, and how much of its time was spent waiting for the client.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    frames: AtomicU32,
    failure: OnceLock<UploadError>,
    activity: Activity,
    begun: Instant,
    /// Whether the next frame has yet to come from the client.
    waiting: AtomicBool,
    /// When the body last moved, or when the wait for the client began, in microseconds since `begun`.
    changed_us: AtomicU64,
    /// Time spent waiting for the client, without the current wait.
    waited_us: AtomicU64,
}

/// Why the upstream did not get the whole body.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum UploadError {
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
        self.0.as_ref().is_some_and(|stream| stream.progress.is_waiting())
    }

    pub(crate) fn streamed(
        body: ClientBody,
        max_bytes: u64,
        max_idle: Duration,
        progress: Arc<UploadProgress>,
    ) -> Self {
        let idle = SharedIdleTimer::after(max_idle, progress.activity());
        Self(Some(UploadStream { body, bytes_left: max_bytes, idle, progress }))
    }
}

impl Default for UploadProgress {
    fn default() -> Self {
        Self {
            frames: AtomicU32::new(0),
            failure: OnceLock::new(),
            activity: Activity::shared(),
            begun: Instant::now(),
            waiting: AtomicBool::new(false),
            changed_us: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
        }
    }
}

impl UploadProgress {
    /// Whether the next piece has yet to come from the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Time spent waiting for the client, without the current wait.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    /// How long ago the body last moved.
    pub(crate) fn idle_for(&self) -> Duration {
        let turned = Duration::from_micros(self.changed_us.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(turned)
    }

    /// Records that the next frame has yet to come from the client.
    fn await_client(&self) {
        if !self.waiting.swap(true, Ordering::Relaxed) {
            self.changed_us.store(self.now_us(), Ordering::Relaxed);
        }
    }

    /// Records that a frame has arrived.
    fn frame_arrived(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let now_us = self.now_us();
        let changed_us = self.changed_us.swap(now_us, Ordering::Relaxed);
        if self.waiting.swap(false, Ordering::Relaxed) {
            self.waited_us.fetch_add(now_us.saturating_sub(changed_us), Ordering::Relaxed);
        }
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Frames that have arrived so far.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// The activity that the response's body shares with this one.
    pub(crate) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    pub(crate) fn failure(&self) -> Option<UploadError> {
        self.failure.get().copied()
    }
}

impl UploadStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            self.progress.await_client();
            ready!(self.idle.poll_expired(cx));
            return Poll::Ready(Some(Err(self.failed(UploadError::Stalled))));
        };
        self.idle.record();
        self.progress.frame_arrived();
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_trailers() => Some(Ok(sanitized(frame))),
            Some(Ok(frame)) => Some(self.count(frame)),
            Some(Err(_)) => Some(Err(self.failed(UploadError::Broken))),
            None => None,
        })
    }

    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, UploadError> {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        match self.bytes_left.checked_sub(bytes) {
            None => Err(self.failed(UploadError::TooLarge)),
            Some(left) => {
                self.bytes_left = left;
                Ok(frame)
            }
        }
    }

    fn failed(&self, failure: UploadError) -> UploadError {
        *self.progress.failure.get_or_init(|| failure)
    }
}

/// Trailers without the fields that clients may not set.
fn sanitized(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            sanitize::sanitize_trailers(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

impl PacedBody for Upload {
    /// Has no effect, because request bodies are read as they arrive.
    fn read_at_most(&mut self, _bytes: usize) {}
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
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
