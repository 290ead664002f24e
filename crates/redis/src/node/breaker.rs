//! Stops asking a node that has stopped answering.
//!
//! Callers are turned away at once while it is open. The node's own lanes keep probing it, one at a time, and close
//! the breaker when it answers again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Notify;

/// How many failures in a row open it.
const FAILURES: u32 = 5;

/// Open or closed, and how close to opening.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: AtomicBool,
    failures_in_a_row: AtomicU32,
    probing: AtomicBool,
    opened: Notify,
}

impl Breaker {
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Notes that so many requests failed. Says whether these opened the breaker.
    pub(crate) fn fail(&self, requests: u32) -> bool {
        let before = self.failures_in_a_row.fetch_add(requests, Ordering::AcqRel);
        before.saturating_add(requests) >= FAILURES && self.trip()
    }

    /// Opens at once, where one failure is proof enough. Says whether it was closed.
    pub(crate) fn trip(&self) -> bool {
        let was_closed = !self.open.swap(true, Ordering::AcqRel);
        if was_closed {
            self.opened.notify_waiters();
        }
        was_closed
    }

    /// Notes an answer that came in time.
    pub(crate) fn succeed(&self) {
        // Reading first keeps the line shared while all is well.
        if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_a_row.store(0, Ordering::Release);
        }
    }

    /// Lets callers through again.
    pub(crate) fn close(&self) {
        self.failures_in_a_row.store(0, Ordering::Release);
        self.open.store(false, Ordering::Release);
    }

    /// Waits until it opens, or returns at once where it is open.
    pub(crate) async fn until_open(&self) {
        let mut opened = std::pin::pin!(self.opened.notified());
        opened.as_mut().enable();
        if !self.is_open() {
            opened.await;
        }
    }

    /// The right to probe, which one holder has at a time.
    pub(crate) fn claim_probe(&self) -> Option<ProbeGuard<'_>> {
        (!self.probing.swap(true, Ordering::AcqRel)).then_some(ProbeGuard(self))
    }
}

/// The right to probe, given back when dropped.
#[derive(Debug)]
pub(crate) struct ProbeGuard<'a>(&'a Breaker);

impl Drop for ProbeGuard<'_> {
    fn drop(&mut self) {
        self.0.probing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_in_a_row_open_it() {
        let breaker = Breaker::default();
        for _ in 1..FAILURES {
            assert!(!breaker.fail(1));
        }
        breaker.succeed();
        for _ in 1..FAILURES {
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
