//! Tokio's clock as a [`Clock`]: in a test with paused time, buckets refill exactly as `sleep` passes.

use spile_core::{Clock, Micros, SystemClock};
use tokio::time::Instant;

/// A clock that reports tokio's time, which does not advance while that is paused.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    started: Instant,
    started_at: Micros,
}

#[expect(clippy::disallowed_methods, reason = "this is tokio's clock, for tests that pause it")]
impl TokioClock {
    /// A clock anchored to the wall time of this moment.
    pub fn new() -> Self {
        Self { started: Instant::now(), started_at: SystemClock::wall_now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is tokio's clock, for tests that pause it")]
impl Clock for TokioClock {
    fn now(&self) -> Micros {
        self.started_at + self.started.elapsed()
    }
}
