//! Limits how often sockets are opened: fewer than twenty dials per second fail.
//!
//! A dial takes a permit. A dial that succeeds returns it at once, so that any number of nodes is reached as fast as
//! they answer. A dial that fails returns it after a second. Background dials share a few permits, so that decisions
//! always find one.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spile_runtime::Runtime;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Dials that may be in progress, or have failed within the last second.
const PERMITS: usize = 16;

/// How many of the permits background dials may take.
const BACKGROUND_PERMITS: usize = 4;

/// How long a failed dial keeps its permit.
const PENALTY: Duration = Duration::from_secs(1);

/// The bound of the first pause, and of the longest. The longest pause plus the timeout of one dial is below a second,
/// within which a recovered node must be found.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A connection that lasted less than this is followed by a pause, as a failed dial is.
pub(crate) const MIN_UPTIME: Duration = Duration::from_secs(1);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DialPriority {
    /// Decisions, and finding the nodes for them.
    Decisions,
    /// Sessions and subscriptions, which can wait.
    Background,
}

/// Limits the dials of one store.
#[derive(Debug)]
pub(crate) struct DialLimiter {
    runtime: Runtime,
    permits: Arc<Semaphore>,
    background_permits: Arc<Semaphore>,
    /// When the permits of failed dials become free, in order of time.
    penalties: Mutex<VecDeque<(Instant, PermitPair)>>,
    failed: Notify,
}

/// A permit, and one of those for background dials. They become free when they are dropped.
type PermitPair = [Option<OwnedSemaphorePermit>; 2];

/// The permit of one dial. It becomes free at once after [success](Self::succeeded), otherwise [`PENALTY`] after it is
/// dropped.
#[derive(Debug)]
pub(crate) struct DialPermit<'a> {
    limiter: &'a DialLimiter,
    held: PermitPair,
}

impl DialLimiter {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            permits: Arc::new(Semaphore::new(PERMITS)),
            background_permits: Arc::new(Semaphore::new(BACKGROUND_PERMITS)),
            penalties: Mutex::default(),
            failed: Notify::new(),
        }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self, priority: DialPriority) -> DialPermit<'_> {
        let mut waiting = pin!(self.acquire_permits(priority));
        loop {
            tokio::select! {
                biased;
                held = &mut waiting => return DialPermit { limiter: self, held },
                () = self.end_of_a_penalty() => {}
            }
        }
    }

    async fn acquire_permits(&self, priority: DialPriority) -> PermitPair {
        // Acquiring cannot fail, because the semaphores are never closed.
        let background = match priority {
            DialPriority::Decisions => None,
            DialPriority::Background => Arc::clone(&self.background_permits).acquire_owned().await.ok(),
        };
        [Arc::clone(&self.permits).acquire_owned().await.ok(), background]
    }

    /// Waits until the next penalty ends, and frees its permit.
    async fn end_of_a_penalty(&self) {
        let failed = self.failed.notified();
        let first = self.penalties.lock().front().map(|(end, _)| *end);
        match first {
            None => failed.await,
            Some(end) => {
                self.runtime.sleep_until(end).await;
                self.free_until(self.runtime.now());
            }
        }
    }

    /// Ends all penalties. For dials that did not fail, but were dropped with the runtime that they ran on.
    pub(crate) fn forgive(&self) {
        self.free_until(self.runtime.now() + PENALTY);
    }

    fn free_until(&self, now: Instant) {
        let mut penalties = self.penalties.lock();
        let ended = penalties.partition_point(|(end, _)| *end <= now);
        penalties.drain(..ended);
    }
}

impl DialPermit<'_> {
    pub(crate) fn succeeded(mut self) {
        self.held = PermitPair::default();
    }
}

impl Drop for DialPermit<'_> {
    fn drop(&mut self) {
        if self.held[0].is_some() {
            let end = self.limiter.runtime.now() + PENALTY;
            self.limiter.penalties.lock().push_back((end, std::mem::take(&mut self.held)));
            self.limiter.failed.notify_waiters();
        }
    }
}

/// Pauses between failures: a random part of a bound that doubles up to its maximum.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) async fn pause(&mut self, runtime: &Runtime) {
        runtime.sleep(self.next(runtime)).await;
    }

    fn next(&mut self, runtime: &Runtime) -> Duration {
        let bound = (FIRST_PAUSE * 2u32.pow(self.failures.min(8))).min(LONGEST_PAUSE);
        self.failures += 1;
        bound.mul_f64(runtime.random_share())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests run on tokio itself")]

    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fewer_than_twenty_dials_fail_in_any_second() {
        let limiter = DialLimiter::new(Runtime::tokio());
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
        let limiter = DialLimiter::new(Runtime::tokio());
        let start = Instant::now();
        for _ in 0..1_000 {
            limiter.acquire(DialPriority::Decisions).await.succeeded();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn dials_that_ended_with_their_runtime_delay_no_others_once_forgiven() {
        let limiter = DialLimiter::new(Runtime::tokio());
        let start = Instant::now();
        for dial in 0..3 * PERMITS {
            if dial % PERMITS == 0 {
                limiter.forgive();
            }
            drop(limiter.acquire(DialPriority::Decisions).await);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_success_lets_all_who_wait_dial() {
        let limiter = Arc::new(DialLimiter::new(Runtime::tokio()));
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
        let limiter = DialLimiter::new(Runtime::tokio());
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
        let pauses: Vec<_> = (0..1_000).map(|_| backoff.next(&Runtime::tokio())).collect();
        assert!(pauses[0] <= FIRST_PAUSE);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        assert!(pauses.iter().any(|pause| *pause > LONGEST_PAUSE * 3 / 4));
        assert!(pauses.iter().any(|pause| *pause < LONGEST_PAUSE / 4));
    }
}
