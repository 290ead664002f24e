//! An idle timer: expires when a stream is silent for too long.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::lasting::LastingTimer;

/// Measures how long a stream has been silent.
#[derive(Debug, Default)]
pub struct IdleTimer {
    limit: Duration,
    timer: LastingTimer,
    /// When the current silence will have lasted too long. `None` if the stream is not silent.
    until: Option<Instant>,
}

impl IdleTimer {
    /// Expires after a silence of this length.
    pub fn after(limit: Duration) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Ends the silence and sets another limit.
    pub const fn restart(&mut self, limit: Duration) {
        self.limit = limit;
        self.reset();
    }

    /// Ends the silence.
    pub const fn reset(&mut self) {
        self.until = None;
    }

    /// Whether the silence has lasted twice as long as the limit.
    pub(crate) fn is_twice_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() > until + self.limit)
    }

    /// Ready once the silence has lasted as long as the limit.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.limit);
        self.timer.poll_until(until, cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn over(idle: &mut IdleTimer) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| idle.poll_expired(cx)).await;
        start.elapsed()
    }

    fn look(idle: &mut IdleTimer) -> bool {
        idle.poll_expired(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_lasts_as_long_as_its_limit() {
        let limit = Duration::from_secs(30);
        let mut idle = IdleTimer::after(limit);
        assert!(over(&mut idle).await.abs_diff(limit) <= Duration::from_millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_arrives_starts_the_silence_anew() {
        let mut idle = IdleTimer::after(Duration::from_secs(30));
        for _ in 0..10 {
            assert!(!look(&mut idle));
            tokio::time::advance(Duration::from_secs(20)).await;
            idle.reset();
        }
        let took = over(&mut idle).await;
        assert!(took.abs_diff(Duration::from_secs(30)) <= Duration::from_millis(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_limit_does_not_wait_for_the_longer_one() {
        let mut idle = IdleTimer::after(Duration::from_secs(60));
        assert!(!look(&mut idle));
        idle.restart(Duration::from_secs(5));
        let took = over(&mut idle).await;
        assert!(took.abs_diff(Duration::from_secs(5)) <= Duration::from_millis(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_ran_out_unseen_starts_anew() {
        let mut idle = IdleTimer::after(Duration::from_secs(5));
        assert!(!look(&mut idle));
        tokio::time::advance(Duration::from_secs(60)).await;
        idle.restart(Duration::from_secs(5));
        let took = over(&mut idle).await;
        assert!(took.abs_diff(Duration::from_secs(5)) <= Duration::from_millis(2), "{took:?}");
    }
}
