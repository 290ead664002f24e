//! Counts decisions that were made without the store, and calls that were not sent to it, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, counter};
use spile_core::{Decision, DecisionSource, FailureReason, Reason, StoreError};

use super::names::{FAIL_CLOSED, FAIL_OPEN, LOCAL, STORE_UNSENT};
use super::registrar::Registrar;

const REASONS: [FailureReason; 6] = [
    FailureReason::RedisError,
    FailureReason::Timeout,
    FailureReason::BadResponse,
    FailureReason::BadTypes,
    FailureReason::BreakerOpen,
    FailureReason::Overloaded,
];

/// The reasons for which a call is not sent.
const UNSENT: [FailureReason; 2] = [FailureReason::BreakerOpen, FailureReason::Overloaded];

/// One counter for each reason. They exist from the start, so that an alert sees the first failure as a rise.
pub(crate) struct FailureCounters {
    open: [Counter; REASONS.len()],
    closed: [Counter; REASONS.len()],
    local: [Counter; REASONS.len()],
    unsent: [Counter; UNSENT.len()],
    all: AtomicU64,
}

impl FailureCounters {
    pub(crate) fn new(registrar: &Registrar) -> Self {
        let counter = |name: &'static str, why: FailureReason| {
            let counter = registrar.register(|| counter!(name, "reason" => why.as_str()));
            counter.increment(0);
            counter
        };
        Self {
            open: REASONS.map(|why| counter(FAIL_OPEN, why)),
            closed: REASONS.map(|why| counter(FAIL_CLOSED, why)),
            local: REASONS.map(|why| counter(LOCAL, why)),
            unsent: UNSENT.map(|why| counter(STORE_UNSENT, why)),
            all: AtomicU64::new(0),
        }
    }

    /// Counts a decision that was made without the store.
    #[cold]
    pub(crate) fn count(&self, decision: &Decision, why: FailureReason) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let Some(index) = REASONS.iter().position(|&known| known == why) else { return };
        match decision.reason() {
            Reason::FailOpen => self.open[index].increment(1),
            Reason::FailClosed => self.closed[index].increment(1),
            // Also for a rule in shadow mode, whose denials have the reason `Shadow`.
            _ if decision.source() == DecisionSource::Local => self.local[index].increment(1),
            _ => {}
        }
    }

    /// Counts a call that was not sent to the store.
    #[cold]
    pub(crate) fn count_unsent(&self, why: &StoreError) {
        if let Some(index) = UNSENT.iter().position(|&known| known == why.reason()) {
            self.unsent[index].increment(1);
        }
    }

    /// All decisions without the store since the start, including those decided locally.
    pub(crate) fn total(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}
