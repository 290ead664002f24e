//! A body that is sent over an HTTP/2 stream, and never more of it than the other side has room for.
//!
//! What is handed to the connection beyond that would stay there for as long as the other side likes, out of reach of
//! every timer.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};
use http_body_util::{Either, Full};

use crate::idle::Idle;

/// What is read of a body at first, before it shows that the other side takes it quickly.
pub const FIRST_READ: usize = 16 * 1024;
/// What the other side must take, at once or bit by bit, to be waited for anew, if it is not the rest of a piece. Less is
/// what one takes who only wants to be waited for.
const SOME_PROGRESS: usize = 1024;
/// What is read at most.
const MAX_READ: usize = 64 * 1024;

/// A body that can be read in portions.
pub trait Paced: Body<Data = Bytes> + Unpin {
    /// Reads no more than this at a time from now on, as far as that is in its power.
    fn read_at_most(&mut self, bytes: usize);
}

impl Paced for Full<Bytes> {
    fn read_at_most(&mut self, _bytes: usize) {}
}

impl<L, R> Paced for Either<L, R>
where
    L: Paced<Error: Into<Box<dyn Error + Send + Sync>>>,
    R: Paced<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    fn read_at_most(&mut self, bytes: usize) {
        match self {
            Self::Left(body) => body.read_at_most(bytes),
            Self::Right(body) => body.read_at_most(bytes),
        }
    }
}

/// Sends a body to its end.
pub struct Sending<B> {
    stream: SendStream<Bytes>,
    body: B,
    /// What was read and is not sent yet.
    piece: Bytes,
    read_at_most: usize,
    /// Runs while the other side leaves no room for a piece.
    untaken: Idle,
    /// What was taken since it was last waited for anew.
    progress: usize,
    awaits_body: bool,
    sent_bytes: u64,
}

/// Why a body was not sent whole.
#[derive(Debug)]
pub enum Unsent<E> {
    /// The other side wants no more of it, or is gone.
    Refused,
    /// The other side has taken nothing for too long.
    Untaken,
    /// The body itself broke off.
    Broken(E),
}

impl<B: Paced> Sending<B> {
    /// The body over this stream. Each piece must be taken within this time.
    pub fn new(stream: SendStream<Bytes>, mut body: B, taken_within: Duration) -> Self {
        body.read_at_most(FIRST_READ);
        let untaken = Idle::after(taken_within);
        let (piece, read_at_most) = (Bytes::new(), FIRST_READ);
        Self { stream, body, piece, read_at_most, untaken, progress: 0, awaits_body: false, sent_bytes: 0 }
    }

    /// Grows while the other side takes the body.
    pub const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Tells the other side that the body broke off.
    pub fn break_off(&mut self) {
        self.stream.send_reset(Reason::INTERNAL_ERROR);
    }

    /// The body, of which some may have been read.
    pub fn into_body(self) -> B {
        self.body
    }

    /// Whether everything that the body gave so far is sent, and more is to come.
    pub const fn awaits_body(&self) -> bool {
        self.awaits_body
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent<B::Error>>> {
        loop {
            if !self.piece.is_empty() && ready!(self.poll_piece(cx))? {
                return Poll::Ready(Ok(()));
            }
            self.awaits_body = true;
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.awaits_body = false;
            match frame.transpose().map_err(Unsent::Broken)?.map(Frame::into_data) {
                None => {
                    return Poll::Ready(
                        self.stream.send_data(Bytes::new(), true).map_err(|_| Unsent::Refused),
                    );
                }
                Some(Ok(data)) if data.is_empty() && self.body.is_end_stream() => {
                    return Poll::Ready(self.stream.send_data(data, true).map_err(|_| Unsent::Refused));
                }
                Some(Ok(data)) => self.piece = data,
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(self.stream.send_trailers(trailers).map_err(|_| Unsent::Refused));
                }
            }
        }
    }

    /// Sends all of the piece. Says whether that was the end of the body.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Unsent<B::Error>>> {
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
                self.untaken.stir();
            }
            last = self.piece.is_empty() && self.body.is_end_stream();
            self.stream.send_data(part, last).map_err(|_| Unsent::Refused)?;
        }
        self.untaken.stir();
        let next = if waited { self.read_at_most / 4 } else { self.read_at_most * 4 };
        self.read_at_most = next.clamp(FIRST_READ, MAX_READ);
        self.body.read_at_most(self.read_at_most);
        Poll::Ready(Ok(last))
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent<B::Error>>> {
        loop {
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(_))) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Unsent::Refused)),
                Poll::Pending => return self.untaken.poll_over(cx).map(|()| Err(Unsent::Untaken)),
            }
        }
    }
}

impl<B: Paced> Future for Sending<B> {
    type Output = Result<(), Unsent<B::Error>>;

    /// A body that is not taken resets the stream. One that breaks off does so when this is dropped.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Unsent::Refused));
        }
        let sent = ready!(this.poll_send(cx));
        match &sent {
            Err(Unsent::Untaken) => this.stream.send_reset(Reason::CANCEL),
            Err(Unsent::Broken(_) | Unsent::Refused) | Ok(()) => {}
        }
        Poll::Ready(sent)
    }
}
