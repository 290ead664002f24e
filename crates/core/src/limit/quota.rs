//! The shape of a quota: all tokens come back when the next window starts.

use super::{Limit, LimitError, QuotaWindows, Shape};
use crate::{Amount, Unit};

/// As many tokens as the capacity in each window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quota {
    windows: QuotaWindows,
}

impl Quota {
    /// The windows.
    pub const fn windows(&self) -> QuotaWindows {
        self.windows
    }
}

/// A builder of a quota. [`build`](Self::build) checks the bounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct QuotaBuilder {
    pub(super) capacity: Amount,
    pub(super) windows: QuotaWindows,
    pub(super) unit: Unit,
    pub(super) debt: Option<Amount>,
}

impl QuotaBuilder {
    pub(super) fn new(capacity: Amount, windows: QuotaWindows) -> Self {
        Self { capacity, windows, unit: Unit::default(), debt: None }
    }

    /// Sets the unit.
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Lets late charges take up to `tokens` beyond what is left: 0 to [`Limit::MAX_TOKENS`], by default the capacity. The next
    /// window starts without that debt.
    pub fn debt(self, tokens: impl Into<Amount>) -> Self {
        Self { debt: Some(tokens.into()), ..self }
    }

    /// Builds the limit if it is within the bounds.
    pub fn build(self) -> Result<Limit, LimitError> {
        let Self { windows, unit, debt, .. } = self;
        let capacity = Limit::bounded(self.capacity, unit)?;
        Limit { capacity, unit, debt: capacity, shape: Shape::Quota(Quota { windows }) }.with_debt(debt)
    }
}
