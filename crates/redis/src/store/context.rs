//! The settings and counters that callers, lanes and sessions of one store share.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use spile_runtime::Runtime;

use crate::connection::dial_limiter::DialLimiter;
use crate::script::key::KeyPrefix;
use crate::store::stats::Counters;
use crate::store::time_source::TimeSource;

/// The state that all parts of one store share.
pub(crate) struct StoreContext {
    pub(crate) runtime: Runtime,
    pub(crate) prefix: KeyPrefix,
    pub(crate) time: TimeSource,
    /// The longest that a caller waits. A reply that takes longer does not count as a success for the breaker.
    pub(crate) timeout: Duration,
    /// A connection without a reply for this long is closed.
    pub(crate) stall: Duration,
    /// Lanes per node.
    pub(crate) connections: usize,
    /// The most unanswered flights on one connection.
    pub(crate) flights: usize,
    /// The most charges that may wait.
    pub(crate) max_waiting: usize,
    pub(crate) limiter: DialLimiter,
    /// The number of the next script call.
    pub(crate) sequence: AtomicU64,
    pub(crate) counters: Counters,
}
