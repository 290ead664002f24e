//! What one request spends.

use crate::{Limit, MicroTokens};

/// Tokens that one request spends. A cost of zero asks whether there is a token, and spends none.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cost(u32);

impl Cost {
    /// No token is spent, but one must be there.
    pub const ZERO: Self = Self(0);
    /// What a request costs by default.
    pub const ONE: Self = Self(1);
    /// The most that a limit could cover.
    pub const MAX: Self = Self(Limit::MAX_TOKENS);

    /// A cost of `tokens`, if any limit could ever cover it.
    pub fn new(tokens: u64) -> Result<Self, CostError> {
        match u32::try_from(tokens) {
            Ok(tokens) if tokens <= Limit::MAX_TOKENS => Ok(Self(tokens)),
            _ => Err(CostError(tokens)),
        }
    }

    /// The number of tokens.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The whole tokens that a bucket must hold for it: the cost, or one if it is zero.
    #[inline]
    pub const fn asked_tokens(self) -> u32 {
        if self.0 == 0 { 1 } else { self.0 }
    }

    /// The same in the unit that buckets are kept in.
    #[inline]
    pub const fn asked(self) -> MicroTokens {
        MicroTokens::from_tokens(self.asked_tokens())
    }

    /// True if a bucket that holds `available` covers it. Stores, leases, the deny cache and peeks all decide by this comparison, so that
    /// a cost of zero gets the same answer from each.
    #[inline]
    pub const fn is_covered_by(self, available: MicroTokens) -> bool {
        available.get() >= self.asked().get()
    }

    /// The cost in the unit that buckets are kept in.
    pub const fn micro(self) -> MicroTokens {
        MicroTokens::from_tokens(self.0)
    }
}

/// A cost that no limit could ever cover.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cost {0} is above {max} tokens, the most that any limit can hold", max = Limit::MAX_TOKENS)]
pub struct CostError(pub u64);
