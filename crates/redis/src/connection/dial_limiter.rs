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
const PERMITS: usize = 16;

/// Those of them that what is no decision may take.
const BACKGROUND_PERMITS: usize = 4;

/// How long a dial that fails keeps its place.
const PENALTY: Duration = Duration::from_secs(1);

/// The pause after the first failure, at most, and the longest pause. Together with the time that one dial may
/// take, the longest pause stays within a second, which is how soon a healed node is to be found.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A connection that did not last this long is followed by a pause, as a failed dial is.
pub(crate) const MIN_UPTIME: Duration = Duration::from_secs(1);

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DialPriority {
    /// Decisions, and finding the node that takes them.
    Decisions,
    /// The registry, sums, subscriptions: they can wait.
    Background,
}

/// Spaces the dials of one store.
#[derive(Debug)]
pub(crate) struct DialLimiter {
    permits: Semaphore,
    background_permits: Semaphore,
    /// When the places of dials that failed are free again, the first one first.
    penalties: Mutex<VecDeque<(Instant, DialPriority)>>,
    failed: Notify,
}

/// A dial's place. Dropped, it is free at the end of the penalty; after [success](Self::succeeded), at once.
#[derive(Debug)]
pub(crate) struct DialPermit<'a> {
    limiter: &'a DialLimiter,
    priority: DialPriority,
    succeeded: bool,
}

impl DialLimiter {
    pub(crate) fn new() -> Self {
        Self {
            permits: Semaphore::new(PERMITS),
            background_permits: Semaphore::new(BACKGROUND_PERMITS),
            penalties: Mutex::default(),
            failed: Notify::new(),
        }
    }

    /// Waits for a place.
    pub(crate) async fn acquire(&self, priority: DialPriority) -> DialPermit<'_> {
        let mut waiting = pin!(self.acquire_permits(priority));
        loop {
            tokio::select! {
                permit = &mut waiting => return permit,
                () = self.end_of_a_penalty() => {}
            }
        }
    }

    async fn acquire_permits(&self, priority: DialPriority) -> DialPermit<'_> {
        // Neither semaphore is ever closed, so neither fails.
        let background = match priority {
            DialPriority::Decisions => None,
            DialPriority::Background => self.background_permits.acquire().await.ok(),
        };
        let permit = self.permits.acquire().await.ok();
        background.into_iter().chain(permit).for_each(SemaphorePermit::forget);
        DialPermit { limiter: self, priority, succeeded: false }
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
        while let Some((end, priority)) = penalties.front().copied()
            && end <= now
        {
            penalties.pop_front();
            self.free(priority);
        }
    }

    fn free(&self, priority: DialPriority) {
        self.permits.add_permits(1);
        if priority == DialPriority::Background {
            self.background_permits.add_permits(1);
        }
    }
}

impl DialPermit<'_> {
    pub(crate) fn succeeded(mut self) {
        self.succeeded = true;
    }
}

impl Drop for DialPermit<'_> {
    fn drop(&mut self) {
        if self.succeeded {
            self.limiter.free(self.priority);
        } else {
            self.limiter.penalties.lock().push_back((Instant::now() + PENALTY, self.priority));
            self.limiter.failed.notify_waiters();
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
        let limiter = DialLimiter::new();
        let start = Instant::now();
        let mut turns = Vec::new();
        for dial in 0..60 {
            let priority = if dial % 3 == 0 { DialPriority::Background } else { DialPriority::Decisions };
            drop(limiter.acquire(priority).await);
            turns.push(start.elapsed());
        }
        for (index, turn) in turns.iter().enumerate() {
            let second = turns[index..].iter().take_while(|later| **later < *turn + Duration::from_secs(1));
            assert!(second.count() < 20);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dials_that_succeed_wait_for_nothing() {
        let limiter = DialLimiter::new();
        let start = Instant::now();
        for _ in 0..1_000 {
            limiter.acquire(DialPriority::Decisions).await.succeeded();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_success_lets_all_who_wait_dial() {
        let limiter = Arc::new(DialLimiter::new());
        for _ in 0..PERMITS {
            drop(limiter.acquire(DialPriority::Decisions).await);
        }
        let start = Instant::now();
        let dial = |_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move { limiter.acquire(DialPriority::Decisions).await.succeeded() })
        };
        for dial in (0..100).map(dial).collect::<Vec<_>>() {
            dial.await.expect("it ends");
        }
        assert!(start.elapsed() <= PENALTY);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_decision_never_takes_the_places_of_decisions() {
        let limiter = DialLimiter::new();
        let start = Instant::now();
        for _ in 0..BACKGROUND_PERMITS {
            drop(limiter.acquire(DialPriority::Background).await);
        }
        assert!(tokio::time::timeout(PENALTY / 2, limiter.acquire(DialPriority::Background)).await.is_err());
        let waited = start.elapsed();
        for _ in 0..PERMITS - BACKGROUND_PERMITS {
            drop(limiter.acquire(DialPriority::Decisions).await);
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
