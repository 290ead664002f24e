//! How often sockets are opened: whatever is broken, fewer than twenty dials a second fail.
//!
//! A dial takes a place. One that succeeds gives it back at once, so that any number of nodes is reached as fast as
//! they answer. One that fails keeps it for a second. Decisions dial first: everything else shares a few places.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until};

/// Dials that may be under way, or have failed within the last second.
const PLACES: usize = 16;

/// Those of them that what is no decision may take.
const SIDE_PLACES: usize = 4;

/// How long a dial that fails keeps its place.
const PENALTY: Duration = Duration::from_secs(1);

/// The pause after the first failure, at most, and the longest pause. Together with the time that one dial may
/// take, the longest pause stays within a second, which is how soon a healed node is to be found.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A connection that did not last this long is followed by a pause, as a failed dial is.
pub(crate) const LASTING: Duration = Duration::from_secs(1);

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// Decisions, and finding the node that takes them.
    Decisions,
    /// The registry, sums, subscriptions: they can wait.
    Side,
}

/// Spaces the dials of one store.
#[derive(Debug)]
pub(crate) struct DialPace {
    places: Semaphore,
    side_places: Semaphore,
    /// When the places of dials that failed are free again, the first one first.
    penalties: Mutex<VecDeque<(Instant, Purpose)>>,
    failed: Notify,
}

/// A dial's place. Dropped, it is free at the end of the penalty; after [success](Self::succeeded), at once.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pace: &'a DialPace,
    purpose: Purpose,
    succeeded: bool,
}

impl DialPace {
    pub(crate) fn new() -> Self {
        Self {
            places: Semaphore::new(PLACES),
            side_places: Semaphore::new(SIDE_PLACES),
            penalties: Mutex::default(),
            failed: Notify::new(),
        }
    }

    /// Waits for a place.
    pub(crate) async fn turn(&self, purpose: Purpose) -> Place<'_> {
        let mut turn = pin!(self.acquire(purpose));
        loop {
            tokio::select! {
                place = &mut turn => return place,
                () = self.end_of_a_penalty() => {}
            }
        }
    }

    async fn acquire(&self, purpose: Purpose) -> Place<'_> {
        // Neither semaphore is ever closed, so neither fails.
        let side = match purpose {
            Purpose::Decisions => None,
            Purpose::Side => self.side_places.acquire().await.ok(),
        };
        let place = self.places.acquire().await.ok();
        side.into_iter().chain(place).for_each(SemaphorePermit::forget);
        Place { pace: self, purpose, succeeded: false }
    }

    /// Waits until a place is free again, and frees it.
    async fn end_of_a_penalty(&self) {
        let failed = self.failed.notified();
        let first = self.penalties.lock().front().map(|(end, _)| *end);
        match first {
            None => failed.await,
            Some(end) => {
                sleep_until(end).await;
                self.free_until(Instant::now());
            }
        }
    }

    fn free_until(&self, now: Instant) {
        let mut penalties = self.penalties.lock();
        while let Some((end, purpose)) = penalties.front().copied()
            && end <= now
        {
            penalties.pop_front();
            self.free(purpose);
        }
    }

    fn free(&self, purpose: Purpose) {
        self.places.add_permits(1);
        if purpose == Purpose::Side {
            self.side_places.add_permits(1);
        }
    }
}

impl Place<'_> {
    pub(crate) fn succeeded(mut self) {
        self.succeeded = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.succeeded {
            self.pace.free(self.purpose);
        } else {
            self.pace.penalties.lock().push_back((Instant::now() + PENALTY, self.purpose));
            self.pace.failed.notify_waiters();
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
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fewer_than_twenty_dials_fail_in_any_second() {
        let pace = DialPace::new();
        let start = Instant::now();
        let mut turns = Vec::new();
        for dial in 0..60 {
            let purpose = if dial % 3 == 0 { Purpose::Side } else { Purpose::Decisions };
            drop(pace.turn(purpose).await);
            turns.push(start.elapsed());
        }
        for (index, turn) in turns.iter().enumerate() {
            let second = turns[index..].iter().take_while(|later| **later < *turn + Duration::from_secs(1));
            assert!(second.count() < 20);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dials_that_succeed_wait_for_nothing() {
        let pace = DialPace::new();
        let start = Instant::now();
        for _ in 0..1_000 {
            pace.turn(Purpose::Decisions).await.succeeded();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_success_lets_all_who_wait_dial() {
        let pace = Arc::new(DialPace::new());
        for _ in 0..PLACES {
            drop(pace.turn(Purpose::Decisions).await);
        }
        let start = Instant::now();
        let dial = |_| {
            let pace = Arc::clone(&pace);
            tokio::spawn(async move { pace.turn(Purpose::Decisions).await.succeeded() })
        };
        for dial in (0..100).map(dial).collect::<Vec<_>>() {
            dial.await.expect("it ends");
        }
        assert!(start.elapsed() <= PENALTY);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_decision_never_takes_the_places_of_decisions() {
        let pace = DialPace::new();
        let start = Instant::now();
        for _ in 0..SIDE_PLACES {
            drop(pace.turn(Purpose::Side).await);
        }
        assert!(tokio::time::timeout(PENALTY / 2, pace.turn(Purpose::Side)).await.is_err());
        let waited = start.elapsed();
        for _ in 0..PLACES - SIDE_PLACES {
            drop(pace.turn(Purpose::Decisions).await);
        }
        assert_eq!(start.elapsed(), waited);
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
