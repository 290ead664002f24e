//! Sends a body over an HTTP/2 stream, and never more than the other side has window for.
//!
//! Data beyond the window would stay in the connection for as long as the other side likes, and no timer would apply to
//! it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};
use http_body_util::{Either, Full};

use crate::timer::IdleTimer;

/// How much of a body is read at once at first, until the other side has shown that it reads quickly.
pub const FIRST_READ: usize = 16 * 1024;
/// How many bytes the other side must accept to restart the timeout, unless it accepts the rest of a piece. Smaller
/// steps do not count, because a client could use them to keep the stream open.
const SOME_PROGRESS: usize = 1024;
/// How much of a body is read at once at most.
const MAX_READ: usize = 64 * 1024;

/// A body that can be read in portions.
pub trait PacedBody: Body<Data = Bytes> + Unpin {
    /// Asks the body to return at most this many bytes per frame from now on.
    fn read_at_most(&mut self, bytes: usize);
}

impl PacedBody for Full<Bytes> {
    fn read_at_most(&mut self, _bytes: usize) {}
}

impl<L, R> PacedBody for Either<L, R>
where
    L: PacedBody<Error: Into<Box<dyn Error + Send + Sync>>>,
    R: PacedBody<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    fn read_at_most(&mut self, bytes: usize) {
        match self {
            Self::Left(body) => body.read_at_most(bytes),
            Self::Right(body) => body.read_at_most(bytes),
        }
    }
}

/// Sends a body to its end.
pub struct SendBody<B> {
    stream: SendStream<Bytes>,
    body: B,
    /// Data that was read and is not sent yet.
    piece: Bytes,
    read_at_most: usize,
    /// Runs while the other side has no window.
    untaken: IdleTimer,
    /// Bytes that were accepted since the timeout was last restarted.
    progress: usize,
    awaits_body: bool,
    sent_bytes: u64,
}

/// Why a body was not sent completely.
#[derive(Debug)]
pub enum SendBodyError<E> {
    /// The other side reset the stream or is gone.
    Refused,
    /// The other side accepted nothing for too long.
    Untaken,
    /// Reading the body failed.
    Broken(E),
}

impl<B: PacedBody> SendBody<B> {
    /// Sends the body over this stream. The other side must accept each piece within this time.
    pub fn new(stream: SendStream<Bytes>, mut body: B, taken_within: Duration) -> Self {
        body.read_at_most(FIRST_READ);
        let untaken = IdleTimer::after(taken_within);
        let (piece, read_at_most) = (Bytes::new(), FIRST_READ);
        Self { stream, body, piece, read_at_most, untaken, progress: 0, awaits_body: false, sent_bytes: 0 }
    }

    /// How many bytes were sent. Grows while the other side accepts the body.
    pub const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Resets the stream, because the body could not be read.
    pub(crate) fn break_off(&mut self) {
        self.stream.send_reset(Reason::INTERNAL_ERROR);
    }

    /// Returns the body, of which some may have been read.
    pub fn into_body(self) -> B {
        self.body
    }

    /// Whether all data that was read is sent and more is awaited from the body.
    pub const fn awaits_body(&self) -> bool {
        self.awaits_body
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendBodyError<B::Error>>> {
        loop {
            if !self.piece.is_empty() && ready!(self.poll_piece(cx))? {
                return Poll::Ready(Ok(()));
            }
            self.awaits_body = true;
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.awaits_body = false;
            match frame.transpose().map_err(SendBodyError::Broken)?.map(Frame::into_data) {
                None => {
                    return Poll::Ready(
                        self.stream.send_data(Bytes::new(), true).map_err(|_| SendBodyError::Refused),
                    );
                }
                Some(Ok(data)) if data.is_empty() && self.body.is_end_stream() => {
                    return Poll::Ready(
                        self.stream.send_data(data, true).map_err(|_| SendBodyError::Refused),
                    );
                }
                Some(Ok(data)) => self.piece = data,
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(
                        self.stream.send_trailers(trailers).map_err(|_| SendBodyError::Refused),
                    );
                }
            }
        }
    }

    /// Sends the whole piece. Returns whether it was the end of the body.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SendBodyError<B::Error>>> {
        let (mut waited, mut last) = (false, false);
        while !self.piece.is_empty() {
            self.stream.reserve_capacity(self.piece.len());
            if self.stream.capacity() == 0 {
                waited = true;
                ready!(self.poll_room(cx))?;
            }
            let part = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
            self.sent_bytes += part.len() as u64;
            self.progress += part.len();
            if self.progress >= SOME_PROGRESS {
                self.progress = 0;
                self.untaken.reset();
            }
            last = self.piece.is_empty() && self.body.is_end_stream();
            self.stream.send_data(part, last).map_err(|_| SendBodyError::Refused)?;
        }
        self.untaken.reset();
        let next = if waited { self.read_at_most / 4 } else { self.read_at_most * 4 };
        self.read_at_most = next.clamp(FIRST_READ, MAX_READ);
        self.body.read_at_most(self.read_at_most);
        Poll::Ready(Ok(last))
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendBodyError<B::Error>>> {
        loop {
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(_))) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(SendBodyError::Refused)),
                Poll::Pending => return self.untaken.poll_expired(cx).map(|()| Err(SendBodyError::Untaken)),
            }
        }
    }
}

impl<B: PacedBody> Future for SendBody<B> {
    type Output = Result<(), SendBodyError<B::Error>>;

    /// Resets the stream if the other side accepts nothing for too long. If reading the body fails, dropping this
    /// resets it.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(SendBodyError::Refused));
        }
        let sent = ready!(this.poll_send(cx));
        match &sent {
            Err(SendBodyError::Untaken) => this.stream.send_reset(Reason::CANCEL),
            Err(SendBodyError::Broken(_) | SendBodyError::Refused) | Ok(()) => {}
        }
        Poll::Ready(sent)
    }
}
