//! How long a caller waits for its turn.

use std::time::Duration;

/// How [`until_ready`](crate::RateLimiter::until_ready) waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    pub(crate) at_most: Option<Duration>,
    pub(crate) jitter: Duration,
}

impl Wait {
    /// Waits as long as it takes.
    pub const fn forever() -> Self {
        Self { at_most: None, jitter: Duration::ZERO }
    }

    /// Waits `limit` at most. If the turn would come later, the denial is returned at once.
    pub const fn at_most(limit: Duration) -> Self {
        Self { at_most: Some(limit), jitter: Duration::ZERO }
    }

    /// Adds up to `jitter` to each wait, so that callers that wait together do not wake together.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    pub(crate) fn drawn_jitter(&self) -> Duration {
        self.jitter.mul_f64(fastrand::f64())
    }
}
