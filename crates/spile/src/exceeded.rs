//! Why a function under `#[rate_limit]` did not run.

use std::time::Duration;

use spile_core::Decision;
use spile_limiter::LimiterError;

/// Why a function under [`rate_limit`](macro@crate::rate_limit) did not run.
///
/// With the feature `axum` it is a response too: the 429 or 503 that the layer would answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RateLimitExceeded {
    /// The caller is over a limit, or the store failed and the policy is to refuse.
    #[error("{}; retry after {wait:?}", reached(.0), wait = .0.retry_after())]
    Denied(Box<Decision>),
    /// The call could never be let in: the plan is unknown, or the cost above what a limit holds. Nothing was
    /// spent.
    #[error(transparent)]
    Invalid(#[from] LimiterError),
    /// The attribute names no limiter, and there is no global one.
    #[error("no limiter to ask: call spile::set_global_limiter at the start, or name one with `limiter = …`")]
    NoLimiter,
}

impl RateLimitExceeded {
    /// The decision that refused. `None` if the limiter was not asked.
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Denied(decision) => Some(decision),
            _ => None,
        }
    }

    /// How long to wait before trying again. `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision().map(Decision::retry_after)
    }

    pub(crate) fn unless_allowed(answer: Result<Decision, LimiterError>) -> Result<(), Self> {
        match answer? {
            decision if decision.allowed() => Ok(()),
            decision => Err(Self::Denied(Box::new(decision))),
        }
    }
}

/// The limit that refused, in words.
fn reached(decision: &Decision) -> String {
    let binding = decision.binding();
    if binding.limit().is_concurrency() {
        format!("concurrency limit {} reached", binding.name())
    } else {
        format!("rate limit {} exceeded", binding.name())
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for RateLimitExceeded {
    fn into_response(self) -> axum_core::response::Response {
        use spile_core::SystemClock;
        use spile_tower::response;

        let answer = match &self {
            Self::Denied(decision) => response::refusal(decision, SystemClock::wall_now()),
            Self::Invalid(error) => response::invalid(error),
            Self::NoLimiter => response::problem(http::StatusCode::INTERNAL_SERVER_ERROR, &self.to_string()),
        };
        answer.map(axum_core::body::Body::from)
    }
}
