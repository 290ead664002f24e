//! Decisions that were made without the store, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, counter};
use spile_core::{Decision, FailureReason, Reason};

use crate::names::{FAIL_CLOSED, FAIL_OPEN};
use crate::registrar::Registrar;

const REASONS: [FailureReason; 6] = [
    FailureReason::RedisError,
    FailureReason::Timeout,
    FailureReason::BadResponse,
    FailureReason::BadTypes,
    FailureReason::BreakerOpen,
    FailureReason::Overloaded,
];

/// One counter for each reason, there from the start so that an alert can see the first failure as a rise.
pub(crate) struct Failures {
    open: [Counter; REASONS.len()],
    closed: [Counter; REASONS.len()],
    all: AtomicU64,
}

impl Failures {
    pub(crate) fn new(registrar: &Registrar) -> Self {
        let counters = |name: &'static str| {
            REASONS.map(|why| {
                let counter = registrar.register(|| counter!(name, "reason" => why.as_str()));
                counter.increment(0);
                counter
            })
        };
        Self { open: counters(FAIL_OPEN), closed: counters(FAIL_CLOSED), all: AtomicU64::new(0) }
    }

    /// Counts a decision that was made without the store.
    #[cold]
    pub(crate) fn count(&self, decision: &Decision, why: FailureReason) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let Some(index) = REASONS.iter().position(|&known| known == why) else { return };
        match decision.reason() {
            Reason::FailOpen => self.open[index].increment(1),
            Reason::FailClosed => self.closed[index].increment(1),
            _ => {}
        }
    }

    /// All of them since the start, those that were decided locally among them.
    pub(crate) fn total(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}
