//! A body that is received over an HTTP/2 stream.
//!
//! A task takes its frames from the connection as soon as they arrive, and joins small ones. Their window is released
//! only when the reader takes them, so that a stream buffers at most one window of bytes, however many frames they came
//! in. Frames that stay in the connection count against all of its streams, and too many small ones end it.

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
/// The largest size that joined frames grow to.
const MAX_JOINED: usize = 16 * 1024;

/// A received body with one reader. If it is dropped before its end, the stream is reset.
#[derive(Debug)]
pub struct ReceiveBody {
    /// `None` if there is no body.
    buffer: Option<Arc<Mutex<ReceiveBuffer>>>,
    /// The `Content-Length`.
    announced: Option<u64>,
}

/// Frames that have arrived and were not read yet.
#[derive(Debug)]
struct ReceiveBuffer {
    /// Kept until the last byte is read, because buffered bytes count against the stream's window until then.
    stream: RecvStream,
    pieces: VecDeque<Bytes>,
    /// The latest small frames, joined.
    joined: BytesMut,
    end: Option<BodyEnd>,
    /// Whether the reader was dropped.
    unread: bool,
    /// Whether the end of the body is still awaited although the reader was dropped.
    awaited: bool,
    /// Woken when there is more data, and at the end.
    reader: Option<Waker>,
    pump: Option<Waker>,
}

/// How the body ended.
#[derive(Debug)]
enum BodyEnd {
    Whole(Option<HeaderMap>),
    Broken(Option<h2::Error>),
}

impl ReceiveBody {
    /// The body of a message with these header fields. Data that has already arrived is taken at once; a task is only
    /// spawned if the body is not complete by then.
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        if stream.is_end_stream() {
            return Self { buffer: None, announced: Some(0) };
        }
        let length = headers.get(http::header::CONTENT_LENGTH);
        let announced = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let mut buffer = ReceiveBuffer::of(stream);
        let whole = buffer.poll_arrivals(&mut Context::from_waker(Waker::noop())).is_ready();
        let buffer = Arc::new(Mutex::new(buffer));
        if !whole {
            let pumped = Arc::clone(&buffer);
            tokio::spawn(poll_fn(move |cx| pumped.lock().poll_pump(cx)));
        }
        Self { buffer: Some(buffer), announced }
    }

    /// Keeps the stream open after the body is dropped.
    pub(crate) fn keep_open(&self) -> KeepOpen {
        if let Some(buffer) = &self.buffer {
            buffer.lock().awaited = true;
        }
        KeepOpen(self.buffer.clone())
    }
}

/// Keeps a stream from being reset when its body is dropped, for as long as this is held.
pub(crate) struct KeepOpen(Option<Arc<Mutex<ReceiveBuffer>>>);

impl KeepOpen {
    /// Ready at the end of the body. Data that arrives is dropped and its window is not released, so that no more than
    /// one window arrives.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.as_ref().map_or(Poll::Ready(()), |buffer| buffer.lock().poll_ended(cx))
    }
}

impl ReceiveBuffer {
    fn of(stream: RecvStream) -> Self {
        let (pieces, joined) = (VecDeque::new(), BytesMut::new());
        let (unread, awaited) = (false, false);
        Self { stream, pieces, joined, end: None, unread, awaited, reader: None, pump: None }
    }

    /// Takes frames until the end of the body, or until the reader is dropped.
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

    /// Takes the frames that have arrived. Ready at the end of the body.
    fn poll_arrivals(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let end = loop {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => self.push(bytes),
                Some(Err(why)) => break BodyEnd::Broken(Some(why)),
                None => {
                    let trailers = ready!(self.stream.poll_trailers(cx));
                    break trailers.map_or_else(|why| BodyEnd::Broken(Some(why)), BodyEnd::Whole);
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

    /// The next piece. Releases its window, so that the other side may send as many bytes more.
    fn take(&mut self) -> Option<Bytes> {
        let joined = |joined: &mut BytesMut| (!joined.is_empty()).then(|| joined.split().freeze());
        let piece = self.pieces.pop_front().or_else(|| joined(&mut self.joined))?;
        // Fails if the stream was reset, which `end` reports.
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

    /// Wakes the task that takes frames, because something has changed.
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
            Some(BodyEnd::Whole(trailers)) => {
                Poll::Ready(trailers.take().map(|fields| Ok(Frame::trailers(fields))))
            }
            Some(BodyEnd::Broken(why)) => Poll::Ready(why.take().map(Err)),
            None => {
                self.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Body for ReceiveBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        self.buffer.as_ref().map_or(Poll::Ready(None), |buffer| buffer.lock().poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.buffer.as_ref().is_none_or(|buffer| {
            let buffer = buffer.lock();
            !buffer.has_more() && matches!(buffer.end, Some(BodyEnd::Whole(None)))
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.announced.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for ReceiveBody {
    fn drop(&mut self) {
        let Some(buffer) = &self.buffer else { return };
        let mut buffer = buffer.lock();
        buffer.unread = true;
        buffer.pieces.clear();
        buffer.joined.clear();
        buffer.wake_pump();
    }
}

impl Drop for KeepOpen {
    fn drop(&mut self) {
        let Some(buffer) = &self.0 else { return };
        let mut buffer = buffer.lock();
        buffer.awaited = false;
        buffer.wake_pump();
    }
}
