//! How often sockets are opened: never more than twenty a second, whatever is broken, and with jittered pauses
//! between failures.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

/// Dials that may go at once, so that a cluster is reached quickly when all is well.
const BURST: u32 = 10;

/// Time per dial after that. The burst and a second of these make twenty.
const SPACING: Duration = Duration::from_millis(100);

/// The pause after the first failure, at most, and the longest pause. Together with the time that one dial may
/// take, the longest pause stays within a second, which is how soon a healed node is to be found.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Spaces the dials of one store.
#[derive(Debug)]
pub(crate) struct DialPace {
    /// When the burst would be whole again: a bucket, kept as the moment at which it is full.
    full_at: Mutex<Instant>,
}

impl DialPace {
    pub(crate) fn new() -> Self {
        Self { full_at: Mutex::new(Instant::now()) }
    }

    /// Waits for this dial's turn. Whoever gives up leaves the turn to the next.
    pub(crate) async fn turn(&self) {
        let turn = self.reserve(Instant::now());
        let mut reservation = Reservation { pace: self, used: false };
        sleep_until(turn).await;
        reservation.used = true;
    }

    fn reserve(&self, now: Instant) -> Instant {
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(now) + SPACING;
        (*full_at - SPACING * BURST).max(now)
    }
}

struct Reservation<'a> {
    pace: &'a DialPace,
    used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.used {
            *self.pace.full_at.lock() -= SPACING;
        }
    }
}

/// Pauses between failures, doubling at most, each a random part of its bound.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) async fn pause(&mut self) {
        sleep(self.next()).await;
    }

    fn next(&mut self) -> Duration {
        let bound = (FIRST_PAUSE * 2u32.pow(self.failures.min(8))).min(LONGEST_PAUSE);
        self.failures += 1;
        bound.mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn at_most_twenty_dials_start_in_any_second() {
        let pace = DialPace::new();
        let start = Instant::now();
        let mut turns = Vec::new();
        for _ in 0..60 {
            pace.turn().await;
            turns.push(start.elapsed());
        }
        for (index, turn) in turns.iter().enumerate() {
            let second = turns[index..].iter().take_while(|later| **later < *turn + Duration::from_secs(1));
            assert!(second.count() <= 20);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_is_given_up_is_not_lost_to_others() {
        let pace = DialPace::new();
        for _ in 0..BURST {
            pace.turn().await;
        }
        for _ in 0..100 {
            assert!(tokio::time::timeout(Duration::from_millis(10), pace.turn()).await.is_err());
            tokio::time::advance(Duration::from_millis(90)).await;
            pace.turn().await;
        }
    }

    #[test]
    fn pauses_grow_from_50_to_400_ms_and_are_jittered() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..1_000).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= FIRST_PAUSE);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        assert!(pauses.iter().any(|pause| *pause > LONGEST_PAUSE * 3 / 4));
        assert!(pauses.iter().any(|pause| *pause < LONGEST_PAUSE / 4));
    }
}
