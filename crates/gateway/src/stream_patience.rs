//! HTTP/2 streams whose client no longer takes what is sent.
//!
//! A client can keep its connection alive and yet never open a stream's window again. Nobody polls the body of an answer
//! then, so no timer in it would run; but the stream's task can tell, for it knows what the body said last.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::body::Idle;
use crate::streams::{Streams, UnderWay};

thread_local! {
    /// What the body that was polled last on this thread said.
    static SAID: Cell<Option<Said>> = const { Cell::new(None) };
}

/// What a body says when polled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// Here is a piece: now it is the client's turn.
    Piece,
    /// Nothing yet: it is still the upstream's turn.
    Nothing,
}

/// Notes what a body has said, for the stream that it belongs to.
pub(crate) fn note(said: Said) {
    SAID.set(Some(said));
}

/// Runs the streams of one HTTP/2 connection, counts them, and ends those whose client has not taken a piece within this
/// time.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor {
    pub(crate) taken_within: Duration,
    pub(crate) streams: Streams,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let untaken = Idle::after(self.taken_within);
        tokio::spawn(Patient { stream, said: Said::Nothing, untaken, under_way: self.streams.begin() });
    }
}

pin_project! {
    /// A stream, and how long its client has been silent.
    struct Patient<F> {
        #[pin]
        stream: F,
        said: Said,
        untaken: Idle,
        under_way: UnderWay,
    }
}

impl<F: Future<Output = ()>> Future for Patient<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        SAID.set(None);
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if let Some(said) = SAID.take() {
            *this.said = said;
            this.untaken.stir();
        }
        // Given up on, the stream is reset, and its upstream let go.
        if *this.said == Said::Piece { this.untaken.poll_over(cx) } else { Poll::Pending }
    }
}
