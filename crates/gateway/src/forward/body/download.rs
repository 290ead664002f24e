//! An upstream's body on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spile_listener::{Deadline, Paced};

use super::activity::{Movement, SharedIdle};
use crate::upstream::{Http2Body, Inbound, Outstanding};

/// A body that is read from the upstream only as fast as the client takes it, within a silence. Holds a place at the
/// upstream until it has arrived whole.
#[derive(Debug)]
pub(crate) struct Download {
    body: Source,
    place: Option<Outstanding>,
    deadline: Deadline,
}

#[derive(Debug)]
enum Source {
    Http1(Inbound),
    Http2 { body: Http2Body, idle: SharedIdle },
}

/// An answer that did not arrive whole. The client sees a connection that breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct BrokenOff;

impl Download {
    pub(crate) fn http1(mut body: Inbound, movement: Movement, place: Outstanding) -> Self {
        body.moves_with(movement);
        body.let_go_at_end();
        Self::new(Source::Http1(body), place)
    }

    pub(crate) fn http2(body: Http2Body, max_idle: Duration, movement: Movement, place: Outstanding) -> Self {
        Self::new(Source::Http2 { body, idle: SharedIdle::after(max_idle, movement) }, place)
    }

    fn new(body: Source, place: Outstanding) -> Self {
        let mut download = Self { body, place: Some(place), deadline: Deadline::after(None) };
        download.leave_at_end();
        download
    }

    /// Breaks off where it is not whole by then.
    pub(crate) fn until(mut self, deadline: Deadline) -> Self {
        self.deadline = deadline;
        self
    }

    /// Gives the place back as soon as nothing more is to come: nobody polls a body that says it has ended.
    fn leave_at_end(&mut self) {
        if self.is_end_stream() {
            self.place = None;
        }
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2 { body, idle } => {
                let Poll::Ready(frame) = Pin::new(&mut body.received).poll_frame(cx) else {
                    return idle.poll_over(cx).map(|()| Some(Err(BrokenOff)));
                };
                idle.stir();
                Poll::Ready(frame.map(|frame| frame.map_err(|_| BrokenOff)))
            }
        }
    }
}

impl Paced for Download {
    fn read_at_most(&mut self, bytes: usize) {
        if let Source::Http1(body) = &mut self.body {
            body.read_at_most(bytes);
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let frame = match self.deadline.poll_over(cx) {
            Poll::Ready(()) => Some(Err(BrokenOff)),
            Poll::Pending => ready!(self.body.poll_frame(cx)),
        };
        match frame {
            Some(Ok(_)) => self.leave_at_end(),
            Some(Err(_)) | None => self.place = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2 { body, .. } => body.received.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Http1(body) => body.size_hint(),
            Source::Http2 { body, .. } => body.received.size_hint(),
        }
    }
}
