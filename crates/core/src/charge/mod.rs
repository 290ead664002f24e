//! The charges of one decision: keys, limits and costs that are spent together.

mod cost;
mod key;
mod permit_id;
mod refund_id;
mod reservation_id;

use std::sync::LazyLock;
use std::time::Duration;

pub use self::cost::{Cost, CostError};
pub use self::key::{Key, KeyError};
pub use self::permit_id::{PermitId, PermitIdError};
pub use self::refund_id::{RefundId, RefundIdError};
pub use self::reservation_id::{ReservationId, ReservationTtlError};
use crate::{Amount, Bucket, Limit, LimitName, Micros, NamedLimit, OneOrMany};

/// A key, the limit that applies to it, and the cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Charge<'a> {
    key: Key<'a>,
    limit: NamedLimit,
    cost: Cost,
}

impl<'a> Charge<'a> {
    /// The charge, unless the cost is above the capacity of the limit. For a concurrency it is always one permit.
    #[inline]
    pub fn new(key: Key<'a>, limit: NamedLimit, cost: Cost) -> Result<Self, ChargeError> {
        if limit.limit().can_cover(cost) {
            let cost = limit.limit().taken_by(cost);
            Ok(Self { key, limit, cost })
        } else {
            Err(above_capacity(&limit, cost))
        }
    }

    /// A charge for usage after the fact, which may exceed the capacity. For [`Operation::Charge`](crate::Operation::Charge).
    pub const fn late(key: Key<'a>, limit: NamedLimit, cost: Cost) -> Self {
        let cost = limit.limit().taken_by(cost);
        Self { key, limit, cost }
    }

    /// A marker of an [operation](crate::Operation::markers).
    pub(crate) fn marker(key: Key<'a>, name: &str) -> Self {
        static LIMIT: LazyLock<Limit> = LazyLock::new(Limit::of_markers);
        Self { key, limit: NamedLimit::new(LimitName::reserved(name), *LIMIT), cost: Cost::ZERO }
    }

    /// True if the limit is a concurrency: the charge takes a permit, which is released later.
    pub const fn needs_permit(&self) -> bool {
        self.limit.limit().is_concurrency()
    }

    /// The key that pays.
    pub const fn key(&self) -> Key<'a> {
        self.key
    }

    /// The limit, with its name.
    pub const fn limit(&self) -> &NamedLimit {
        &self.limit
    }

    /// The amount to spend.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// True if `bucket` covers the cost at `now`.
    #[inline]
    pub fn is_covered_by(&self, bucket: Bucket, now: Micros) -> bool {
        let limit = self.limit.limit();
        limit.is_covered(self.cost, bucket.available(limit, now))
    }

    /// True if both charges use the same bucket.
    fn shares_bucket_with(&self, other: &Self) -> bool {
        self.key == other.key && self.limit.name() == other.limit.name()
    }
}

/// One to [`Charges::MAX`] charges that are spent all together or not at all. No two of them share a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Charges<'a>(OneOrMany<Charge<'a>>);

impl<'a> Charges<'a> {
    /// The longest chain.
    pub const MAX: usize = 32;

    /// A chain of these charges, unless it is empty or too long. A bucket that occurs twice is charged once, at the higher cost.
    pub fn new(charges: impl IntoIterator<Item = Charge<'a>>) -> Result<Self, ChargeError> {
        let mut charges = charges.into_iter();
        let mut chain = Self::from(charges.next().ok_or(ChargeError::Empty)?);
        charges.try_for_each(|charge| chain.push(charge))?;
        Ok(chain)
    }

    /// A chain of charges that the caller knows to use different buckets, unless it is empty or too long. Only debug builds compare
    /// them.
    #[inline]
    pub fn distinct(charges: impl IntoIterator<Item = Charge<'a>>) -> Result<Self, ChargeError> {
        let chain: OneOrMany<_> = charges.into_iter().collect();
        debug_assert!(Self::are_distinct(&chain), "two charges share a bucket");
        match chain.len() {
            0 => Err(ChargeError::Empty),
            1..=Self::MAX => Ok(Self(chain)),
            _ => Err(ChargeError::TooMany),
        }
    }

    fn are_distinct(charges: &[Charge<'a>]) -> bool {
        let is_new = |(index, charge): (usize, &Charge<'a>)| {
            !charges[..index].iter().any(|one| one.shares_bucket_with(charge))
        };
        charges.iter().enumerate().all(is_new)
    }

    /// Puts these charges between others, on buckets that a store keeps for itself. Those do not count towards [`MAX`](Self::MAX).
    pub(crate) fn with_others(
        &self,
        before: impl IntoIterator<Item = Charge<'a>>,
        after: impl IntoIterator<Item = Charge<'a>>,
    ) -> Self {
        Self(before.into_iter().chain(self.iter().cloned()).chain(after).collect())
    }

    /// A chain of one charge, unless the cost is above the capacity of the limit.
    #[inline]
    pub fn one(key: Key<'a>, limit: &NamedLimit, cost: Cost) -> Result<Self, ChargeError> {
        if !limit.limit().can_cover(cost) {
            return Err(above_capacity(limit, cost));
        }
        let cost = limit.limit().taken_by(cost);
        // Built in place, because moving a charge costs as much as a decision.
        Ok(Self(OneOrMany::one(Charge { key, limit: limit.clone(), cost })))
    }

    /// The first charge that takes a permit. `None` if the chain has no concurrency.
    #[inline]
    pub fn first_permit(&self) -> Option<&Charge<'a>> {
        self.0.iter().find(|charge| charge.needs_permit())
    }

    /// How long a permit of these charges is held: the shortest hold time. `None` if no charge takes a permit.
    pub fn hold(&self) -> Option<Duration> {
        self.0.iter().filter_map(|charge| charge.limit.limit().hold()).min()
    }

    /// The charges that take a permit, or those that do not. `None` if no charge is of that kind.
    pub fn only(&self, takes_permit: bool) -> Option<Self> {
        Self::distinct(self.iter().filter(|charge| charge.needs_permit() == takes_permit).cloned()).ok()
    }

    /// Adds a charge, unless the chain is full. A bucket that is in the chain already is charged once, at the higher cost, because
    /// one request uses each bucket once.
    pub fn push(&mut self, charge: Charge<'a>) -> Result<(), ChargeError> {
        if let Some(earlier) = self.0.iter_mut().find(|earlier| earlier.shares_bucket_with(&charge)) {
            if earlier.cost < charge.cost {
                *earlier = charge;
            }
            return Ok(());
        }
        if self.0.len() == Self::MAX {
            return Err(ChargeError::TooMany);
        }
        self.0.push(charge);
        Ok(())
    }
}

impl<'a> From<Charge<'a>> for Charges<'a> {
    #[inline]
    fn from(charge: Charge<'a>) -> Self {
        Self(OneOrMany::one(charge))
    }
}

impl<'a> IntoIterator for Charges<'a> {
    type Item = Charge<'a>;
    type IntoIter = <OneOrMany<Charge<'a>> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> std::ops::Deref for Charges<'a> {
    type Target = [Charge<'a>];

    #[inline]
    fn deref(&self) -> &[Charge<'a>] {
        &self.0
    }
}

#[cold]
fn above_capacity(limit: &NamedLimit, cost: Cost) -> ChargeError {
    let capacity = limit.limit().capacity();
    ChargeError::CostAboveCapacity { limit: limit.name().clone(), cost: cost.amount(), capacity }
}

/// Why charges cannot be built. Nothing has been spent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// Waiting does not help: the bucket can never hold as much.
    #[error("cost {cost} is above {capacity}, the capacity of limit {limit}: it can never pass")]
    CostAboveCapacity {
        /// The limit whose capacity is too small.
        limit: LimitName,
        /// The requested cost.
        cost: Amount,
        /// The capacity of the limit.
        capacity: Amount,
    },
    /// The chain is empty.
    #[error("a decision takes 1 to {max} limits, not none", max = Charges::MAX)]
    Empty,
    /// The chain is too long.
    #[error("a decision takes 1 to {max} limits, not more", max = Charges::MAX)]
    TooMany,
}
