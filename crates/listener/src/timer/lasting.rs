//! A timer that is kept between the times that it is set to.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer of the runtime, made when it is first waited for. It is not set anew while it runs towards an earlier time: the later
/// one is looked at when it fires. Most times are never reached, and to set a timer costs more than to let it run.
#[derive(Debug, Default)]
pub(super) struct LastingTimer(Option<Pin<Box<Sleep>>>);

impl LastingTimer {
    /// Ready once it is that late.
    pub(super) fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() > until {
            timer.as_mut().reset(until);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}
