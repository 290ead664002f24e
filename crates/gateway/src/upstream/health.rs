//! Whether an upstream is well: what requests to it came to, and what checks say.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use metrics::Gauge;
use spile_core::Micros;

/// Failures in a row after which an upstream is left alone for a while.
const MAX_FAILURES: u32 = 5;
/// How long it is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// How a route's upstreams are asked whether they are well.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path that is asked for; a status from 200 to 399 is a good answer.
    pub path: http::uri::PathAndQuery,
    /// How often. Default 5 s.
    pub interval: Duration,
    /// How long an answer may take. Default 2 s.
    pub timeout: Duration,
    /// Bad answers in a row that take an upstream out. Default 3.
    pub unhealthy_after: u32,
    /// Good answers in a row that bring it back. Default 2.
    pub healthy_after: u32,
}

impl HealthCheck {
    /// Asks for this path.
    pub const fn new(path: http::uri::PathAndQuery) -> Self {
        Self {
            path,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// What is known of one upstream's health.
#[derive(Debug)]
pub(crate) struct Health {
    /// What checks say. Good until they say otherwise.
    up: AtomicBool,
    /// Checks in a row that say the opposite.
    contrary: AtomicU32,
    /// Requests in a row that failed.
    failures: AtomicU32,
    /// When it may be tried again, in microseconds since the epoch.
    left_alone_until_us: AtomicU64,
    gauge: Gauge,
}

impl Health {
    pub(crate) fn new(gauge: Gauge) -> Self {
        gauge.set(1.0);
        Self {
            up: AtomicBool::new(true),
            contrary: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            left_alone_until_us: AtomicU64::new(0),
            gauge,
        }
    }

    pub(crate) fn is_well(&self, now: Micros) -> bool {
        self.up.load(Ordering::Relaxed) && self.left_alone_until_us.load(Ordering::Relaxed) <= now.get()
    }

    /// A request was answered.
    pub(crate) fn answered(&self) {
        // Mostly there is nothing to write, and no cache line to move between cores.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// A request could not be sent, or its answer broke off.
    pub(crate) fn failed(&self, now: Micros) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILURES {
            self.failures.store(0, Ordering::Relaxed);
            self.left_alone_until_us.store((now + LEFT_ALONE).get(), Ordering::Relaxed);
        }
    }

    /// Nobody checks any more: what checks last said would stand for good.
    pub(crate) fn unchecked(&self) {
        self.up.store(true, Ordering::Relaxed);
        self.gauge.set(1.0);
    }

    /// A check came to this.
    pub(crate) fn checked(&self, good: bool, check: &HealthCheck) {
        let up = self.up.load(Ordering::Relaxed);
        if good == up {
            self.contrary.store(0, Ordering::Relaxed);
            return;
        }
        let contrary = self.contrary.fetch_add(1, Ordering::Relaxed) + 1;
        let enough = if up { check.unhealthy_after } else { check.healthy_after };
        if contrary >= enough {
            self.contrary.store(0, Ordering::Relaxed);
            self.up.store(good, Ordering::Relaxed);
            self.gauge.set(f64::from(u8::from(good)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros::from_secs(1_000);

    #[test]
    fn checks_take_an_upstream_out_and_bring_it_back() {
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/health"));
        let health = Health::new(Gauge::noop());
        for bad in 0..3 {
            assert!(health.is_well(NOW), "after {bad} bad answers");
            health.checked(false, &check);
        }
        assert!(!health.is_well(NOW));
        health.checked(true, &check);
        assert!(!health.is_well(NOW), "one good answer is not enough");
        health.checked(true, &check);
        assert!(health.is_well(NOW));
    }

    #[test]
    fn failures_in_a_row_leave_an_upstream_alone_for_a_while() {
        let health = Health::new(Gauge::noop());
        (0..4).for_each(|_| health.failed(NOW));
        health.answered();
        (0..4).for_each(|_| health.failed(NOW));
        assert!(health.is_well(NOW), "an answer in between starts the count again");
        health.failed(NOW);
        assert!(!health.is_well(NOW));
        assert!(health.is_well(NOW + LEFT_ALONE));
    }
}
