//! A limit on silence: runs out where nothing arrives for too long.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Measures how long a stream has been silent. No timer exists before the first silence, and none is set again while
/// an earlier one still runs: it is looked at when that one is up.
#[derive(Debug, Default)]
pub struct Idle {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the present silence will have lasted too long; nothing where there is none.
    until: Option<Instant>,
}

impl Idle {
    /// Runs out after a silence of this length.
    pub fn after(limit: Duration) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Starts over with another limit.
    pub const fn restart(&mut self, limit: Duration) {
        self.limit = limit;
        self.stir();
    }

    /// Something arrived.
    pub const fn stir(&mut self) {
        self.until = None;
    }

    /// Whether the silence has lasted twice as long as it may.
    pub fn is_twice_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() > until + self.limit)
    }

    /// Ready once the silence has lasted too long.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.limit);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn over(idle: &mut Idle) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| idle.poll_over(cx)).await;
        start.elapsed()
    }

    fn look(idle: &mut Idle) -> bool {
        idle.poll_over(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_lasts_as_long_as_its_limit() {
        let limit = Duration::from_secs(30);
        let mut idle = Idle::after(limit);
        assert!(over(&mut idle).await.abs_diff(limit) <= Duration::from_millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_arrives_starts_the_silence_anew() {
        let mut idle = Idle::after(Duration::from_secs(30));
        for _ in 0..10 {
            assert!(!look(&mut idle));
            tokio::time::advance(Duration::from_secs(20)).await;
            idle.stir();
        }
        let took = over(&mut idle).await;
        assert!(took.abs_diff(Duration::from_secs(30)) <= Duration::from_millis(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_limit_does_not_wait_for_the_longer_one() {
        let mut idle = Idle::after(Duration::from_secs(60));
        assert!(!look(&mut idle));
        idle.restart(Duration::from_secs(5));
        let took = over(&mut idle).await;
        assert!(took.abs_diff(Duration::from_secs(5)) <= Duration::from_millis(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_ran_out_unseen_starts_anew() {
        let mut idle = Idle::after(Duration::from_secs(5));
        assert!(!look(&mut idle));
        tokio::time::advance(Duration::from_secs(60)).await;
        idle.restart(Duration::from_secs(5));
        let took = over(&mut idle).await;
        assert!(took.abs_diff(Duration::from_secs(5)) <= Duration::from_millis(2), "{took:?}");
    }
}
