//! A body that arrives over an HTTP/2 stream.
//!
//! Its frames are taken off the connection as soon as they arrive, by a task of its own, and small ones are joined.
//! They are acknowledged only as the reader takes them, so that a stream holds as many bytes as its window has, in
//! however many frames they came. Frames that stay with the connection count against all of its streams together, and
//! too many small ones end it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// Frames below this size are joined with their neighbours.
const WORTH_JOINING: usize = 1024;
/// What joined frames grow to at most.
const MAX_JOINED: usize = 16 * 1024;

/// A body, read by one reader. Dropped before its end, it resets the stream.
#[derive(Debug)]
pub struct Received {
    /// `None` if there is no body.
    arrivals: Option<Arc<Mutex<Arrivals>>>,
    /// What the header says of the length.
    announced: Option<u64>,
}

/// What has arrived and was not read yet.
#[derive(Debug)]
struct Arrivals {
    /// Kept until the last byte is read: what is held counts against the stream's window until then.
    stream: RecvStream,
    pieces: VecDeque<Bytes>,
    /// Small frames that came last.
    joined: BytesMut,
    end: Option<End>,
    /// Whether the reader is gone.
    unread: bool,
    /// Whether the end is waited for though the reader is gone.
    awaited: bool,
    /// Woken when there is more, and at the end.
    reader: Option<Waker>,
    pump: Option<Waker>,
}

/// How the body ended.
#[derive(Debug)]
enum End {
    Whole(Option<HeaderMap>),
    Broken(Option<h2::Error>),
}

impl Received {
    /// The body of a message with these fields. What has arrived with them is taken at once; only a body that is not
    /// whole by then needs a task.
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        if stream.is_end_stream() {
            return Self { arrivals: None, announced: Some(0) };
        }
        let length = headers.get(http::header::CONTENT_LENGTH);
        let announced = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let mut arrivals = Arrivals::of(stream);
        let whole = arrivals.poll_arrivals(&mut Context::from_waker(Waker::noop())).is_ready();
        let arrivals = Arc::new(Mutex::new(arrivals));
        if !whole {
            let pumped = Arc::clone(&arrivals);
            tokio::spawn(poll_fn(move |cx| pumped.lock().poll_pump(cx)));
        }
        Self { arrivals: Some(arrivals), announced }
    }

    /// What keeps the stream open after the body is dropped.
    pub(crate) fn keep_open(&self) -> KeepOpen {
        if let Some(arrivals) = &self.arrivals {
            arrivals.lock().awaited = true;
        }
        KeepOpen(self.arrivals.clone())
    }
}

/// Keeps a stream from being reset when its body is dropped, for as long as this is held.
pub(crate) struct KeepOpen(Option<Arc<Mutex<Arrivals>>>);

impl KeepOpen {
    /// Ready with the end of the body. What arrives is dropped and not acknowledged, so that no more than a window does.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.as_ref().map_or(Poll::Ready(()), |arrivals| arrivals.lock().poll_ended(cx))
    }
}

impl Arrivals {
    fn of(stream: RecvStream) -> Self {
        let (pieces, joined) = (VecDeque::new(), BytesMut::new());
        let (unread, awaited) = (false, false);
        Self { stream, pieces, joined, end: None, unread, awaited, reader: None, pump: None }
    }

    /// Takes what arrives until the end, or until the reader is gone.
    fn poll_pump(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unread && !self.awaited {
            return Poll::Ready(());
        }
        if self.pump.as_ref().is_none_or(|pump| !pump.will_wake(cx.waker())) {
            self.pump = Some(cx.waker().clone());
        }
        let over = self.poll_arrivals(cx);
        if (over.is_ready() || self.has_more())
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
        over
    }

    /// Takes what has arrived. Ready with the end of the body.
    fn poll_arrivals(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let end = loop {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => self.push(bytes),
                Some(Err(why)) => break End::Broken(Some(why)),
                None => {
                    let trailers = ready!(self.stream.poll_trailers(cx));
                    break trailers.map_or_else(|why| End::Broken(Some(why)), End::Whole);
                }
            }
        };
        self.end = Some(end);
        Poll::Ready(())
    }

    fn push(&mut self, bytes: Bytes) {
        if self.unread {
            return;
        }
        let small = bytes.len() < WORTH_JOINING;
        if !self.joined.is_empty() && (!small || self.joined.len() + bytes.len() > MAX_JOINED) {
            self.pieces.push_back(self.joined.split().freeze());
        }
        if small && self.has_more() {
            self.joined.extend_from_slice(&bytes);
        } else if !bytes.is_empty() {
            self.pieces.push_back(bytes);
        }
    }

    fn has_more(&self) -> bool {
        !self.pieces.is_empty() || !self.joined.is_empty()
    }

    /// The next piece. The other side may send as many bytes more.
    fn take(&mut self) -> Option<Bytes> {
        let joined = |joined: &mut BytesMut| (!joined.is_empty()).then(|| joined.split().freeze());
        let piece = self.pieces.pop_front().or_else(|| joined(&mut self.joined))?;
        // Fails if the stream was reset, which its end tells.
        let _open = self.stream.flow_control().release_capacity(piece.len());
        Some(piece)
    }

    fn poll_ended(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.end.is_some() {
            return Poll::Ready(());
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Lets the pump see that something has changed.
    fn wake_pump(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.wake();
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(piece) = self.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &mut self.end {
            Some(End::Whole(trailers)) => {
                Poll::Ready(trailers.take().map(|fields| Ok(Frame::trailers(fields))))
            }
            Some(End::Broken(why)) => Poll::Ready(why.take().map(Err)),
            None => {
                self.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        self.arrivals.as_ref().map_or(Poll::Ready(None), |arrivals| arrivals.lock().poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.arrivals.as_ref().is_none_or(|arrivals| {
            let arrivals = arrivals.lock();
            !arrivals.has_more() && matches!(arrivals.end, Some(End::Whole(None)))
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.announced.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Some(arrivals) = &self.arrivals else { return };
        let mut arrivals = arrivals.lock();
        arrivals.unread = true;
        arrivals.pieces.clear();
        arrivals.joined.clear();
        arrivals.wake_pump();
    }
}

impl Drop for KeepOpen {
    fn drop(&mut self) {
        let Some(arrivals) = &self.0 else { return };
        let mut arrivals = arrivals.lock();
        arrivals.awaited = false;
        arrivals.wake_pump();
    }
}
