//! Idle timeouts for two bodies at once.
//!
//! A call in which only one side sends is not idle: the timeout of each body runs only while the other one is silent
//! too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use spile_listener::IdleTimer;

/// One body's view of the activity in an exchange. Clones belong to the same exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    /// `None` if there is no other body.
    moves: Option<Arc<AtomicU32>>,
    /// The number of moves when this side last checked.
    seen: u32,
}

/// An idle timeout for one body that starts again when the other one moves.
#[derive(Debug)]
pub(crate) struct SharedIdleTimer {
    idle: IdleTimer,
    activity: Activity,
}

impl Activity {
    /// The activity of an exchange with two bodies.
    pub(crate) fn shared() -> Self {
        Self { moves: Some(Arc::default()), seen: 0 }
    }

    /// Records that this side has moved.
    pub(crate) fn record(&mut self) {
        if let Some(moves) = &self.moves {
            self.seen = moves.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        }
    }

    /// Ready once this side's timeout has expired and the other side was silent too. The timeout starts again if not.
    pub(crate) fn poll_idle(&mut self, idle: &mut IdleTimer, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(idle.poll_expired(cx));
            let moves = self.moves.as_ref().map_or(self.seen, |moves| moves.load(Ordering::Relaxed));
            if std::mem::replace(&mut self.seen, moves) == moves {
                return Poll::Ready(());
            }
            idle.reset();
        }
    }
}

impl SharedIdleTimer {
    pub(crate) fn after(limit: Duration, activity: Activity) -> Self {
        Self { idle: IdleTimer::after(limit), activity }
    }

    /// Records that a frame of this body has arrived.
    pub(crate) fn record(&mut self) {
        self.idle.reset();
        self.activity.record();
    }

    /// Ready once both sides have been silent for too long.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.activity.poll_idle(&mut self.idle, cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{Instant, advance};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn sides() -> (SharedIdleTimer, SharedIdleTimer) {
        let activity = Activity::shared();
        (SharedIdleTimer::after(LIMIT, activity.clone()), SharedIdleTimer::after(LIMIT, activity))
    }

    fn is_over(side: &mut SharedIdleTimer) -> bool {
        side.poll_expired(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_is_silent_is_not_idle_while_the_other_speaks() {
        let (mut silent, mut speaks) = sides();
        for _ in 0..10 {
            assert!(!is_over(&mut silent));
            advance(LIMIT / 2).await;
            speaks.record();
        }
        assert!(!is_over(&mut silent));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_side_said_itself_does_not_make_its_silence_longer() {
        let (mut side, _other) = sides();
        side.record();
        let start = Instant::now();
        poll_fn(|cx| side.poll_expired(cx)).await;
        assert!(start.elapsed().abs_diff(LIMIT) < Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn both_sides_silent_is_idle() {
        let (mut one, mut other) = sides();
        one.record();
        let start = Instant::now();
        poll_fn(|cx| other.poll_expired(cx)).await;
        assert!(start.elapsed() <= 2 * LIMIT + Duration::from_millis(10));
    }
}
