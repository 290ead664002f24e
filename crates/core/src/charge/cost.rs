//! The amount that one request spends.

use crate::{Amount, Limit};

/// The amount that one request spends, from zero to the most that a limit can hold. A cost of zero asks whether there is a
/// [quantum](crate::Unit::quantum), and spends nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cost(Amount);

impl Cost {
    /// Spends nothing, but asks for a quantum.
    pub const ZERO: Self = Self(Amount::ZERO);
    /// One token, the cost of a request by default.
    pub const ONE: Self = Self(Amount::TOKEN);
    /// The most that a limit could cover.
    pub const MAX: Self = Self(Limit::MAX_AMOUNT);

    /// A cost of this amount, or of this number of whole tokens. An error if no limit could ever cover it.
    pub fn new(amount: impl Into<Amount>) -> Result<Self, CostError> {
        let amount = amount.into();
        if Amount::ZERO <= amount && amount <= Limit::MAX_AMOUNT {
            Ok(Self(amount))
        } else {
            Err(CostError(amount))
        }
    }

    /// The cost of this amount, clamped to the range from zero to [`MAX`](Self::MAX).
    pub fn saturating(amount: impl Into<Amount>) -> Self {
        Self(amount.into().clamp(Amount::ZERO, Limit::MAX_AMOUNT))
    }

    /// The amount.
    pub const fn amount(self) -> Amount {
        self.0
    }
}

/// A cost that no limit could ever cover.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cost {0} is outside 0 to {max} tokens, the most that any limit can hold", max = Limit::MAX_AMOUNT)]
pub struct CostError(pub Amount);
