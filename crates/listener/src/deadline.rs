//! The time that all of a request may take, from when its upstream is asked to the last of the answer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// Runs out once, if it runs at all.
#[derive(Debug)]
pub struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// Runs out after this time, or never.
    pub fn after(total: Option<Duration>) -> Self {
        Self(total.map(|total| Box::pin(sleep(total))))
    }

    /// Ready once the time is over.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx))
    }

    /// What the work comes to, unless the time runs out first.
    pub const fn hold<F: Future>(&mut self, work: F) -> Held<'_, F> {
        Held { deadline: self, work }
    }
}

pin_project! {
    /// Work that has a deadline. A future of its own, for an `async fn` would keep the work twice.
    pub struct Held<'d, F> {
        deadline: &'d mut Deadline,
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for Held<'_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let held = self.project();
        match held.work.poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => held.deadline.poll_over(cx).map(|()| None),
        }
    }
}
