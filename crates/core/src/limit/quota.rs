//! The shape of a quota: all tokens come back when the next window starts.

use super::{Limit, LimitError, QuotaWindows, Shape};
use crate::{Amount, Unit};

/// As many tokens as the capacity in each window. Optionally a debt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    windows: QuotaWindows,
    debt: Amount,
}

impl Quota {
    /// The windows.
    #[inline]
    pub const fn windows(&self) -> QuotaWindows {
        self.windows
    }

    pub(super) const fn debt(&self) -> Amount {
        self.debt
    }

    pub(super) const fn with_debt(self, debt: Amount) -> Self {
        Self { debt, ..self }
    }
}

/// A builder of a quota. [`build`](Self::build) checks the bounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct QuotaBuilder {
    capacity: Amount,
    windows: QuotaWindows,
    unit: Unit,
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
        let Self { windows, unit, .. } = self;
        let capacity = Limit::bounded(self.capacity, unit)?;
        let debt = self.debt.unwrap_or(capacity);
        if !(Amount::ZERO <= debt && debt <= Limit::MAX_AMOUNT) {
            return Err(LimitError::Debt(debt));
        }
        Ok(Limit { capacity, unit, shape: Shape::Quota(Quota { windows, debt }) })
    }
}

impl TryFrom<QuotaBuilder> for Limit {
    type Error = LimitError;

    fn try_from(builder: QuotaBuilder) -> Result<Self, LimitError> {
        builder.build()
    }
}
