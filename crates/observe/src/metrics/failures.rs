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
    allowed: AtomicU64,
    denied: AtomicU64,
    decided_here: AtomicU64,
}

/// Decisions that were made without the store, by what was done instead.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct DegradedCounts {
    /// Allowed without a limit.
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Decided by this instance alone.
    pub(crate) local: u64,
}

impl DegradedCounts {
    pub(crate) const fn all(self) -> u64 {
        self.allowed + self.denied + self.local
    }

    /// What was counted since `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed - before.allowed,
            denied: self.denied - before.denied,
            local: self.local - before.local,
        }
    }
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
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            decided_here: AtomicU64::new(0),
        }
    }

    /// Counts a decision that was made without the store.
    #[cold]
    pub(crate) fn count(&self, decision: &Decision, why: FailureReason) {
        let (sum, counters) = match decision.reason() {
            Reason::FailOpen => (&self.allowed, &self.open),
            Reason::FailClosed => (&self.denied, &self.closed),
            // Also for a rule in shadow mode, whose denials have the reason `Shadow`.
            _ if decision.source() == DecisionSource::Local => (&self.decided_here, &self.local),
            // A rule in shadow mode lets the request pass.
            _ => {
                self.allowed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        sum.fetch_add(1, Ordering::Relaxed);
        if let Some(index) = REASONS.iter().position(|&known| known == why) {
            counters[index].increment(1);
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
        self.counts().all()
    }

    /// The same, by what was done instead.
    pub(crate) fn counts(&self) -> DegradedCounts {
        DegradedCounts {
            allowed: self.allowed.load(Ordering::Relaxed),
            denied: self.denied.load(Ordering::Relaxed),
            local: self.decided_here.load(Ordering::Relaxed),
        }
    }
}
