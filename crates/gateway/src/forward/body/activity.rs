//! Whether anything moves between a client and an upstream, in either direction.
//!
//! A call in which only one side speaks is not idle: each body's silence counts only as long as the other one is silent
//! too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use spile_listener::Idle;

/// One body's part in an exchange. Clones are parts in the same exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct Movement {
    /// `None` if there is no other body.
    moves: Option<Arc<AtomicU32>>,
    /// How many moves there were when this side last looked.
    seen: u32,
}

/// A silence of one body that ends with a move of the other.
#[derive(Debug)]
pub(crate) struct SharedIdle {
    idle: Idle,
    movement: Movement,
}

impl Movement {
    /// Part in an exchange of two bodies.
    pub(crate) fn of_two() -> Self {
        Self { moves: Some(Arc::default()), seen: 0 }
    }

    /// This side has moved.
    pub(crate) fn stir(&mut self) {
        if let Some(moves) = &self.moves {
            self.seen = moves.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        }
    }

    /// Whether the other side has moved since this one last looked.
    pub(crate) fn has_moved(&mut self) -> bool {
        let Some(moves) = &self.moves else { return false };
        let moves = moves.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen, moves) != moves
    }
}

impl SharedIdle {
    pub(crate) fn after(limit: Duration, movement: Movement) -> Self {
        Self { idle: Idle::after(limit), movement }
    }

    /// Something arrived.
    pub(crate) fn stir(&mut self) {
        self.idle.stir();
        self.movement.stir();
    }

    /// Ready once both sides have been silent for too long.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.idle.poll_over(cx));
            if !self.movement.has_moved() {
                return Poll::Ready(());
            }
            self.idle.stir();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{Instant, advance};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn sides() -> (SharedIdle, SharedIdle) {
        let movement = Movement::of_two();
        (SharedIdle::after(LIMIT, movement.clone()), SharedIdle::after(LIMIT, movement))
    }

    fn is_over(side: &mut SharedIdle) -> bool {
        side.poll_over(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_is_silent_is_not_idle_while_the_other_speaks() {
        let (mut silent, mut speaks) = sides();
        for _ in 0..10 {
            assert!(!is_over(&mut silent));
            advance(LIMIT / 2).await;
            speaks.stir();
        }
        assert!(!is_over(&mut silent));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_side_said_itself_does_not_make_its_silence_longer() {
        let (mut side, _other) = sides();
        side.stir();
        let start = Instant::now();
        poll_fn(|cx| side.poll_over(cx)).await;
        assert!(start.elapsed().abs_diff(LIMIT) < Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn both_sides_silent_is_idle() {
        let (mut one, mut other) = sides();
        one.stir();
        let start = Instant::now();
        poll_fn(|cx| other.poll_over(cx)).await;
        assert!(start.elapsed() <= 2 * LIMIT + Duration::from_millis(10));
    }
}
