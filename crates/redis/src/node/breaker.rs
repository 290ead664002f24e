//! A circuit breaker for a node that does not answer.
//!
//! While it is open, callers fail at once. The lanes of the node probe it, one at a time, and close the breaker when it
//! answers again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::{Mutex, MutexGuard, Notify};

/// Whether requests are let through, and the consecutive failures.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: AtomicBool,
    failures_in_a_row: AtomicU32,
    probing: Mutex<()>,
    opened: Notify,
}

impl Breaker {
    /// Consecutive failures that open it.
    pub(crate) const FAILURES: u32 = 5;

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Counts failed requests. Returns whether they opened the breaker.
    pub(crate) fn fail(&self, requests: u32) -> bool {
        let before = self.failures_in_a_row.fetch_add(requests, Ordering::AcqRel);
        before.saturating_add(requests) >= Self::FAILURES && self.trip()
    }

    /// Opens at once. Returns whether it was closed.
    pub(crate) fn trip(&self) -> bool {
        let was_closed = !self.open.swap(true, Ordering::AcqRel);
        if was_closed {
            self.opened.notify_waiters();
        }
        was_closed
    }

    /// Records a reply that arrived in time.
    pub(crate) fn succeed(&self) {
        // Reading first keeps the cache line shared while there are no failures.
        if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_a_row.store(0, Ordering::Release);
        }
    }

    /// Lets requests through again.
    pub(crate) fn close(&self) {
        self.failures_in_a_row.store(0, Ordering::Release);
        self.open.store(false, Ordering::Release);
    }

    /// Waits until it opens. Returns at once if it is open.
    pub(crate) async fn until_open(&self) {
        let mut opened = std::pin::pin!(self.opened.notified());
        opened.as_mut().enable();
        if !self.is_open() {
            opened.await;
        }
    }

    /// Acquires the right to probe. `None` while another lane has it.
    pub(crate) fn claim_probe(&self) -> Option<MutexGuard<'_, ()>> {
        self.probing.try_lock().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_in_a_row_open_it() {
        let breaker = Breaker::default();
        for _ in 1..Breaker::FAILURES {
            assert!(!breaker.fail(1));
        }
        breaker.succeed();
        for _ in 1..Breaker::FAILURES {
            assert!(!breaker.fail(1));
        }
        assert!(breaker.fail(1));
        assert!(breaker.is_open());
        assert!(!breaker.fail(1), "it opens once");
        breaker.close();
        assert!(!breaker.is_open());
        assert!(!breaker.fail(1), "closing forgets the failures");
    }

    #[test]
    fn one_probe_runs_at_a_time() {
        let breaker = Breaker::default();
        let probe = breaker.claim_probe();
        assert!(probe.is_some());
        assert!(breaker.claim_probe().is_none());
        drop(probe);
        assert!(breaker.claim_probe().is_some());
    }
}
