//! How long a caller waits for its turn.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_runtime::Runtime;

/// How [`until_ready`](crate::RateLimiter::until_ready) and [`acquire_when_ready`](crate::RateLimiter::acquire_when_ready) wait.
///
/// A caller that waits is denied at once while the store fails, unless the limiter's policy is
/// [`Local`](FailurePolicy::Local) or it asks to [fail open](Self::fail_open): a worker that paces itself by the answers would
/// otherwise run without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    pub(crate) at_most: Option<Duration>,
    pub(crate) jitter: Duration,
    fails_open: bool,
}

impl Wait {
    /// Waits as long as it takes.
    pub const fn forever() -> Self {
        Self { at_most: None, jitter: Duration::ZERO, fails_open: false }
    }

    /// Waits `limit` at most. If the turn would come later, the denial is returned at once.
    pub const fn at_most(limit: Duration) -> Self {
        Self { at_most: Some(limit), jitter: Duration::ZERO, fails_open: false }
    }

    /// Adds up to `jitter` to each wait, so that callers that wait together do not wake together.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Passes at once while the store fails, if the limiter's failure policy is [`Allow`](FailurePolicy::Allow).
    #[must_use]
    pub const fn fail_open(mut self) -> Self {
        self.fails_open = true;
        self
    }

    /// The failure policy for a caller that waits, under a limiter with this one.
    pub(crate) const fn policy(&self, configured: FailurePolicy) -> FailurePolicy {
        match configured {
            FailurePolicy::Allow if !self.fails_open => FailurePolicy::Deny,
            policy => policy,
        }
    }

    pub(crate) fn drawn_jitter(&self, runtime: &Runtime) -> Duration {
        self.jitter.mul_f64(runtime.random_share())
    }
}
