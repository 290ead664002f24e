//! Why a store could not answer.

use std::sync::Arc;
use std::time::Duration;

use crate::FailureReason;

/// Why a store could not answer. Being over a limit is a [`crate::Decision`], not an error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be reached, or refused.
    #[error("store unavailable: {message}")]
    Unavailable {
        /// The message of the store or the network.
        message: Arc<str>,
        /// True if the request had been sent when it failed.
        may_have_run: bool,
    },
    /// No answer came within the deadline.
    #[error("store gave no answer within {0:?}")]
    TimedOut(Duration),
    /// The answer cannot be read.
    #[error("store gave an answer that cannot be read: {0}")]
    BadResponse(Arc<str>),
    /// The stored state has a type that could not be read or repaired.
    #[error("stored bucket has a type that cannot be read: {0}")]
    BadTypes(Arc<str>),
    /// The breaker is open after repeated failures.
    #[error("store is not asked while its breaker is open")]
    BreakerOpen,
    /// Too many requests are already waiting.
    #[error("store is not asked while {0} requests wait for it")]
    Overloaded(usize),
}

impl StoreError {
    /// True if the step may have happened although it failed. A retry could then charge twice.
    pub const fn may_have_run(&self) -> bool {
        match self {
            Self::Unavailable { may_have_run, .. } => *may_have_run,
            Self::TimedOut(_) | Self::BadResponse(_) => true,
            Self::BadTypes(_) | Self::BreakerOpen | Self::Overloaded(_) => false,
        }
    }

    /// False if nothing was sent to the store, because its breaker is open or too many calls wait for it already.
    pub const fn was_asked(&self) -> bool {
        !matches!(self, Self::BreakerOpen | Self::Overloaded(_))
    }

    /// The reason, as metrics count it.
    pub const fn reason(&self) -> FailureReason {
        match self {
            Self::Unavailable { .. } => FailureReason::RedisError,
            Self::TimedOut(_) => FailureReason::Timeout,
            Self::BadResponse(_) => FailureReason::BadResponse,
            Self::BadTypes(_) => FailureReason::BadTypes,
            Self::BreakerOpen => FailureReason::BreakerOpen,
            Self::Overloaded(_) => FailureReason::Overloaded,
        }
    }
}
