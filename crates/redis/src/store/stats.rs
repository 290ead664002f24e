//! Counters, warnings and the state of nodes, for metrics and health.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::node::write_failures::RedisErrorKind;

/// Counters since the store was built, and its current state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that Redis answered.
    pub answered: u64,
    /// Script calls that carried them. Fewer than the requests, because concurrent requests share calls.
    pub calls: u64,
    /// Buckets that had a wrong type, corrupt numbers or an unknown version, and were reset to full.
    pub repairs: u64,
    /// Permits that ended because they were neither renewed nor released in time. Told when their key is next used.
    pub expired_permits: u64,
    /// Sockets that the store tried to open.
    pub dials: u64,
    /// Connections that were open and were lost.
    pub connections_lost: u64,
    /// Charges that wait for an answer now.
    pub waiting: u64,
    /// Nodes whose breaker is open now.
    pub breakers_open: u64,
    /// Nodes in use now.
    pub nodes: u64,
    /// Open connections to them.
    pub connections: u64,
    /// Requests that Redis answered with an error, by kind in the order of [`RedisErrorKind::ALL`].
    pub error_replies: [u64; RedisErrorKind::ALL.len()],
}

impl Stats {
    /// Whether the breaker of any node is open.
    pub const fn is_breaker_open(&self) -> bool {
        self.breakers_open > 0
    }
}

/// The counters that the tasks of a store write.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) answered: Counter,
    pub(crate) calls: Counter,
    pub(crate) repairs: Counter,
    pub(crate) expired_permits: Counter,
    pub(crate) dials: Counter,
    pub(crate) connections_lost: Counter,
    pub(crate) error_replies: [Counter; RedisErrorKind::ALL.len()],
    pub(crate) warnings: Warnings,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        // Most numbers that may be zero are.
        if more > 0 {
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Problems that do not stop decisions: one per subject, until it is cleared.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<BTreeMap<String, String>>);

impl Warnings {
    pub(crate) fn set(&self, subject: &str, why: String) {
        self.0.lock().insert(subject.to_owned(), why);
    }

    pub(crate) fn clear(&self, subject: &str) {
        self.0.lock().remove(subject);
    }

    /// All warnings on one line. `None` without warnings.
    pub(crate) fn summary(&self) -> Option<String> {
        let warnings = self.0.lock();
        let lines: Vec<_> = warnings.iter().map(|(subject, why)| format!("{subject}: {why}")).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}
