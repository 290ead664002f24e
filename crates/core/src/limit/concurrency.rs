//! The shape of a concurrency: tokens are permits, which return when they are released or expire.

use std::fmt;
use std::time::Duration;

use super::{Limit, LimitError, Shape, write_span};
use crate::{Amount, Unit};

/// At most as many permits as the capacity at once, each held until it is released or its hold time has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Concurrency {
    hold_ms: u32,
}

impl Concurrency {
    /// How long a permit is held unless it is renewed or released.
    pub const fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms as u64)
    }
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_span(f, u64::from(self.hold_ms) * 1_000)
    }
}

/// A builder of a concurrency. [`build`](Self::build) checks the bounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct ConcurrencyBuilder {
    permits: u64,
    hold: Duration,
}

impl ConcurrencyBuilder {
    pub(super) const fn new(permits: u64) -> Self {
        Self { permits, hold: Limit::DEFAULT_HOLD }
    }

    /// Holds a permit for this time unless it is renewed or released: 1 second to 1 day, in whole milliseconds.
    pub const fn hold(self, time: Duration) -> Self {
        Self { hold: time, ..self }
    }

    /// Builds the limit if it is within the bounds.
    pub fn build(self) -> Result<Limit, LimitError> {
        let Self { permits, hold } = self;
        let is_bounded = (1..=u64::from(Limit::MAX_PERMITS)).contains(&permits);
        let capacity = is_bounded.then(|| Amount::from(permits)).ok_or(LimitError::Permits(permits))?;
        let is_whole = hold.subsec_nanos().is_multiple_of(1_000_000);
        let hold_ms = u32::try_from(hold.as_millis()).ok();
        let hold_ms =
            hold_ms.filter(|_| is_whole && Limit::HOLDS.contains(&hold)).ok_or(LimitError::Hold(hold))?;
        let shape = Shape::Concurrency(Concurrency { hold_ms });
        Ok(Limit { capacity, unit: Unit::default(), debt: Amount::ZERO, shape })
    }
}
