//! The time that all of a request may take, from when its upstream is asked to the last of the answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Runs out once, if it runs at all.
#[derive(Debug)]
pub(crate) struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// Runs out after this time, or never.
    pub(crate) fn after(total: Option<Duration>) -> Self {
        Self(total.map(|total| Box::pin(sleep(total))))
    }

    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx))
    }

    /// What the work comes to, unless the time runs out first.
    pub(crate) async fn hold<F: Future>(&mut self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_over(cx).map(|()| None),
        })
        .await
    }
}
