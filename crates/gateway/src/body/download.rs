//! An upstream's body on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::idle::Idle;

/// What is held while an answer is on its way: a place at the upstream, and its connection.
pub(crate) trait OnEnd: Send + 'static {
    /// The answer has arrived whole. Where it has not, this is dropped instead.
    fn whole(self: Box<Self>);
}

/// A body that is read from the upstream only as fast as the client takes it, within a silence.
pub(crate) struct Download {
    body: Incoming,
    idle: Idle,
    held: Option<Box<dyn OnEnd>>,
}

/// An answer that did not arrive whole. The client sees a connection that breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct BrokenOff;

impl Download {
    pub(crate) fn new(body: Incoming, max_idle: Duration, held: Box<dyn OnEnd>) -> Self {
        let mut download = Self { body, idle: Idle::after(max_idle), held: Some(held) };
        download.let_go_at_end();
        download
    }

    /// Gives back what is held as soon as nothing more is to come: nobody polls a body that says it has ended.
    fn let_go_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        if let Some(held) = self.held.take() {
            held.whole();
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
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.idle.poll_over(cx));
            self.held = None;
            return Poll::Ready(Some(Err(BrokenOff)));
        };
        self.idle.stir();
        match frame {
            None => self.let_go(),
            Some(Ok(_)) => self.let_go_at_end(),
            Some(Err(_)) => self.held = None,
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|_| BrokenOff)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download").field("body", &self.body).finish_non_exhaustive()
    }
}
