//! Why a limit cannot be built.

use std::time::Duration;

use super::Limit;
use crate::Amount;

/// Why a limit cannot be built. Each error names the value and the bound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The capacity is below the quantum of its unit, or too large to stay exact.
    #[error("capacity {capacity} is outside {least} to {max} tokens", max = Limit::MAX_TOKENS)]
    Capacity {
        /// The requested capacity.
        capacity: Amount,
        /// The smallest capacity: a quantum.
        least: Amount,
    },
    /// The refill is zero or too large to stay exact.
    #[error("refill {0} is outside 0.000001 to {max} tokens per period", max = Limit::MAX_TOKENS)]
    Refill(Amount),
    /// The period is zero, finer than a microsecond, or too long for 64 bits of microseconds.
    #[error("period {0:?} is not a whole number of microseconds, at least one")]
    Period(Duration),
    /// The refill is too fast to stay exact.
    #[error("a refill of {0} tokens per second is above 1000000000")]
    Rate(f64),
    /// The debt is too large to stay exact, or would take too long to repay.
    #[error("a debt of {0} is outside 0 to {max} tokens, or takes over ten years to repay", max = Limit::MAX_TOKENS)]
    Debt(Amount),
    /// The number of permits is zero or too large.
    #[error("concurrency {0} is outside 1 to {max} permits", max = Limit::MAX_PERMITS)]
    Permits(u64),
    /// The hold time is too short to be renewed in time, or would let a lost permit block others for days.
    #[error("a hold time of {0:?} is outside 1 s to 1 day in whole milliseconds")]
    Hold(Duration),
    /// The operation takes no permit id, so a permit could never be released.
    #[error("a concurrency needs a permit: `acquire` takes one")]
    NeedsPermit,
    /// The lease is too short to save a call, or would leave tokens idle for too long.
    #[error("a lease of {0:?} is outside 1 ms to 10 s")]
    Lease(Duration),
    /// A drained bucket would not be full again within ten years.
    #[error("capacity {capacity} at {per_second} tokens per second takes over ten years to fill")]
    FillTime {
        /// The requested burst.
        capacity: Amount,
        /// The refill, in tokens per second.
        per_second: f64,
    },
}
