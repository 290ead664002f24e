//! The body of an upstream's answer, read from its connection as the client takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spile_listener::Idle;

use super::chunked::{Chunked, Step};
use super::connection::Http1;
use super::early::Early;
use super::framing::Length;
use super::transport::{Upgraded, poll_bytes};
use crate::forward::body::{BrokenOff, Movement};
use crate::upstream::Lines;

/// A body, and the connection that it arrives on.
#[derive(Debug)]
pub(crate) struct Inbound {
    source: Source,
    /// What has arrived and was not handed on yet.
    arrived: Bytes,
    left: Left,
    /// Where the connection goes with the last of the body; nowhere if it must be closed then.
    lines: Option<Arc<Lines>>,
    movement: Movement,
    read_at_most: usize,
}

/// Where the rest of the body comes from.
#[derive(Debug)]
pub(super) enum Source {
    Line(Box<Http1>),
    /// The request is still being sent.
    Early(Box<Early>),
    Gone,
}

/// How much is to come.
#[derive(Debug)]
enum Left {
    Nothing,
    Exact(u64),
    Chunked(Box<Chunked>),
    UntilClose,
}

impl Inbound {
    pub(super) fn new(source: Source, arrived: Bytes, length: Length, lines: Option<Arc<Lines>>) -> Self {
        let left = match length {
            Length::None => Left::Nothing,
            Length::Exact(bytes) => Left::Exact(bytes),
            Length::Chunked => Left::Chunked(Box::default()),
            Length::UntilClose => Left::UntilClose,
        };
        Self { source, arrived, left, lines, movement: Movement::default(), read_at_most: usize::MAX }
    }

    /// Is not idle while the request's body moves.
    pub(crate) fn moves_with(&mut self, movement: Movement) {
        self.movement = movement;
    }

    /// Takes no more than this from the connection at a time, so that no more has to be held if the client is slow.
    pub(crate) const fn read_at_most(&mut self, bytes: usize) {
        self.read_at_most = bytes;
    }

    /// The connection, for whatever both sides speak from now on.
    pub(crate) fn into_upgraded(self) -> Option<Upgraded> {
        match self.source {
            Source::Line(line) => Some(Upgraded { arrived: self.arrived, transport: line.transport }),
            Source::Early(_) | Source::Gone => None,
        }
    }

    /// Lets go of the connection once the body is through. It must not be used again if anything is left on it: that
    /// would be taken for the answer to the next request.
    pub(crate) fn let_go_at_end(&mut self) {
        if !matches!(self.left, Left::Nothing) {
            return;
        }
        let source = std::mem::replace(&mut self.source, Source::Gone);
        if let (Source::Line(line), Some(lines), true) = (source, self.lines.take(), self.arrived.is_empty())
        {
            lines.park(line);
        }
    }

    /// The next of the body that has arrived already.
    fn next(&mut self) -> Result<Option<Frame<Bytes>>, BrokenOff> {
        let data = match &mut self.left {
            Left::Nothing => return Ok(None),
            Left::Exact(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(self.arrived.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
                self.arrived.split_to(taken)
            }
            Left::UntilClose => std::mem::take(&mut self.arrived),
            Left::Chunked(chunked) => {
                let step = chunked.step(&mut self.arrived).map_err(|_| BrokenOff)?;
                if chunked.has_ended() {
                    self.left = Left::Nothing;
                }
                match step {
                    Step::Data(data) => data,
                    Step::Trailers(trailers) => return Ok(Some(Frame::trailers(trailers))),
                    Step::End | Step::Starved => return Ok(None),
                }
            }
        };
        Ok(Some(Frame::data(data)).filter(|frame| frame.data_ref().is_none_or(|data| !data.is_empty())))
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BrokenOff>> {
        let at_most = self.read_at_most;
        let (read, idle): (_, &mut Idle) = match &mut self.source {
            Source::Line(line) => (poll_bytes(&mut line.transport, cx, at_most), &mut line.idle),
            Source::Early(early) => (poll_bytes(&mut early.reader, cx, at_most), &mut early.idle),
            Source::Gone => return Poll::Ready(Err(BrokenOff)),
        };
        let Poll::Ready(read) = read else {
            ready!(idle.poll_over(cx));
            while self.movement.has_moved() {
                idle.stir();
                ready!(idle.poll_over(cx));
            }
            return Poll::Ready(Err(BrokenOff));
        };
        idle.stir();
        self.movement.stir();
        self.arrived = read.map_err(|_| BrokenOff)?;
        if self.arrived.is_empty() {
            let Left::UntilClose = self.left else { return Poll::Ready(Err(BrokenOff)) };
            (self.left, self.lines) = (Left::Nothing, None);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BrokenOff>> {
        loop {
            if let Some(frame) = self.next()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if matches!(self.left, Left::Nothing) {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_more(cx))?;
        }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let next = ready!(self.poll_next(cx));
        if next.is_err() {
            (self.source, self.left) = (Source::Gone, Left::Nothing);
        }
        self.let_go_at_end();
        Poll::Ready(next.transpose())
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Left::Nothing => SizeHint::with_exact(0),
            Left::Exact(bytes) => SizeHint::with_exact(bytes),
            Left::Chunked(_) | Left::UntilClose => SizeHint::default(),
        }
    }
}
