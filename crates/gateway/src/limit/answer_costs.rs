//! How often the answers of a route told what they cost.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, counter};
use spile_core::Micros;

/// At most one line is logged in this time, for each route.
const LOG_EVERY_US: u64 = 60_000_000;

/// Counts the answers of one route whose requests are settled, and logs now and then that some could not be.
#[derive(Debug)]
pub(crate) struct AnswerCosts {
    route: Box<str>,
    settled: Counter,
    no_number: Counter,
    broken_off: Counter,
    encoded: Counter,
    failed: Counter,
    /// When the next line may be logged.
    quiet_until_us: AtomicU64,
}

impl AnswerCosts {
    pub(crate) fn new(route: &str) -> Self {
        let result = |result: &'static str| counter!("gateway_answer_costs_total", "route" => route.to_owned(), "result" => result);
        Self {
            route: route.into(),
            settled: result("settled"),
            no_number: result("no_number"),
            broken_off: result("broken_off"),
            encoded: result("encoded"),
            failed: result("failed"),
            quiet_until_us: AtomicU64::new(0),
        }
    }

    /// The answer said its cost, and the store took it.
    pub(crate) fn count_settled(&self) {
        self.settled.increment(1);
    }

    /// The answer broke off after it had said a part of its cost.
    pub(crate) fn count_broken_off(&self) {
        self.broken_off.increment(1);
    }

    /// The answer did not say its cost. That is worth a line if it should have.
    pub(crate) fn count_no_number(&self, now: Micros, expected: bool) {
        self.no_number.increment(1);
        if expected {
            self.log(now, "answers do not say what they cost: their requests stay charged as at first");
        }
    }

    /// The answer was compressed although the upstream was asked not to.
    pub(crate) fn count_encoded(&self, now: Micros) {
        self.encoded.increment(1);
        self.log(now, "answers are encoded and cannot be read: their requests stay charged as at first");
    }

    /// The store did not take the cost.
    pub(crate) fn count_failed(&self, now: Micros) {
        self.failed.increment(1);
        self.log(now, "the store did not take what answers cost: their requests stay charged as at first");
    }

    fn log(&self, now: Micros, message: &str) {
        let until = now.get().saturating_add(LOG_EVERY_US);
        let begin = |quiet_until| (now.get() >= quiet_until).then_some(until);
        if self.quiet_until_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin).is_ok() {
            tracing::warn!(target: "spile::gateway", route = &*self.route, "{message}");
        }
    }
}
