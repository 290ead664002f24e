//! A pause in virtual time.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Nanos, Scheduler};

/// Completes at its moment. Its timer is removed when it is dropped.
pub(super) struct Pause {
    scheduler: Scheduler,
    until: Nanos,
    timer: Option<u64>,
}

impl Pause {
    pub(super) const fn new(scheduler: Scheduler, until: Nanos) -> Self {
        Self { scheduler, until, timer: None }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let scheduler = self.scheduler.clone();
        let mut state = scheduler.0.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let number = *self.timer.get_or_insert_with(|| state.number());
        let former = state.timers.insert((self.until, number), cx.waker().clone());
        drop((state, former));
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            let timer = self.scheduler.0.lock().timers.remove(&(self.until, number));
            drop(timer);
        }
    }
}
