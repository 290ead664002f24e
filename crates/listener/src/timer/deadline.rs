//! A limit on the whole duration of an exchange, whichever side it is on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// Expires once, or never.
#[derive(Debug)]
pub struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// Expires after this time. Never expires if it is `None`.
    pub fn after(total: Option<Duration>) -> Self {
        Self(total.map(|total| Box::pin(sleep(total))))
    }

    /// Ready once the deadline has expired.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx))
    }

    /// Runs a future. The output is `None` if the deadline expires first.
    pub const fn run<F: Future>(&mut self, work: F) -> WithDeadline<'_, F> {
        WithDeadline { deadline: self, work }
    }
}

pin_project! {
    /// A future with a deadline. Written by hand, because an `async fn` would hold the inner future twice.
    pub struct WithDeadline<'d, F> {
        deadline: &'d mut Deadline,
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for WithDeadline<'_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let held = self.project();
        match held.work.poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => held.deadline.poll_expired(cx).map(|()| None),
        }
    }
}
