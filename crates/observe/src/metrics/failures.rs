//! Counts decisions that were made without the store, and calls to it that failed, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, counter};
use serde::{Deserialize, Serialize};
use spile_core::{Decision, DecisionSource, FailureReason, Operation, Reason};

use super::names::{FAIL_CLOSED, FAIL_OPEN, LOCAL, STORE_FAILURES};
use super::registrar::Registrar;

const REASONS: [FailureReason; 6] = [
    FailureReason::RedisError,
    FailureReason::Timeout,
    FailureReason::BadResponse,
    FailureReason::BadTypes,
    FailureReason::BreakerOpen,
    FailureReason::Overloaded,
];

/// The names of all operations.
const OPERATIONS: [&str; 12] = [
    "spend",
    "peek",
    "spend_up_to",
    "charge",
    "refund",
    "reserve",
    "settle",
    "acquire",
    "retake",
    "renew",
    "release",
    "reset",
];

/// A counter for each reason.
type ByReason = [Counter; REASONS.len()];

/// Decisions that were made without the store, by how they ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StorelessCounts {
    /// Allowed without any limit.
    pub passed: u64,
    /// Denied without any limit.
    pub refused: u64,
    /// Decided by this instance alone, under its share of the limits.
    pub local: u64,
}

impl StorelessCounts {
    /// The sum of all.
    pub const fn all(&self) -> u64 {
        self.passed + self.refused + self.local
    }

    /// The difference to an earlier count.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            passed: self.passed - before.passed,
            refused: self.refused - before.refused,
            local: self.local - before.local,
        }
    }
}

impl std::ops::AddAssign for StorelessCounts {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.refused += more.refused;
        self.local += more.local;
    }
}

/// One counter for each reason. They exist from the start, so that an alert sees the first failure as a rise.
pub(crate) struct FailureCounters {
    open: ByReason,
    closed: ByReason,
    local: ByReason,
    /// By the name of the operation.
    calls: [(&'static str, ByReason); OPERATIONS.len()],
    passed: AtomicU64,
    refused: AtomicU64,
    decided_locally: AtomicU64,
    late: AtomicU64,
}

impl FailureCounters {
    pub(crate) fn new(registrar: &Registrar) -> Self {
        let by_reason = |make: &dyn Fn(&'static str) -> Counter| {
            REASONS.map(|why| {
                let counter = registrar.register(|| make(why.as_str()));
                counter.increment(0);
                counter
            })
        };
        let decisions = |name: &'static str| by_reason(&|why| counter!(name, "reason" => why));
        let calls =
            |op: &'static str| (op, by_reason(&|why| counter!(STORE_FAILURES, "op" => op, "reason" => why)));
        Self {
            open: decisions(FAIL_OPEN),
            closed: decisions(FAIL_CLOSED),
            local: decisions(LOCAL),
            calls: OPERATIONS.map(calls),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            decided_locally: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }
    }

    /// Counts a decision that was made without the store.
    #[cold]
    pub(crate) fn count(&self, decision: &Decision, why: FailureReason) {
        if why == FailureReason::Timeout {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        let (total, counters) = match decision.reason() {
            Reason::FailOpen => (&self.passed, &self.open),
            Reason::FailClosed => (&self.refused, &self.closed),
            // Also for a rule in shadow mode, whose denials have the reason `Shadow`.
            _ if decision.source() == DecisionSource::Local => (&self.decided_locally, &self.local),
            // A rule in shadow mode lets the request pass.
            _ => {
                self.passed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        total.fetch_add(1, Ordering::Relaxed);
        count(counters, why);
    }

    /// Counts a call that failed, whether or not it was sent.
    #[cold]
    pub(crate) fn count_call(&self, operation: &Operation<'_>, why: FailureReason) {
        if let Some((_, counters)) = self.calls.iter().find(|(op, _)| *op == operation.name()) {
            count(counters, why);
        }
    }

    /// Decisions since the start that the store did not answer in time.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// All decisions without the store since the start.
    pub(crate) fn totals(&self) -> StorelessCounts {
        StorelessCounts {
            passed: self.passed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            local: self.decided_locally.load(Ordering::Relaxed),
        }
    }
}

fn count(counters: &ByReason, why: FailureReason) {
    if let Some(index) = REASONS.iter().position(|&known| known == why) {
        counters[index].increment(1);
    }
}
