//! A plan: the named list of limits that a caller holds.

mod name;
mod registry;

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

pub use self::name::{LimitName, NameError, PlanName};
pub use self::registry::{InMemoryPlans, PlanRegistry};
use crate::{Charges, Limit, LimitError, OneOrMany};

/// A limit and its name in headers, metrics and stores.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLimit {
    name: LimitName,
    limit: Limit,
    tag: u64,
}

impl NamedLimit {
    /// The bits of a [tag](Self::tag) that hold the [code of the shape](crate::Shape::code).
    pub const SHAPE_BITS: u64 = 3;

    /// Names a limit.
    pub fn new(name: LimitName, limit: Limit) -> Self {
        let hash = FixedState::default().hash_one(name.as_str());
        Self { name, limit, tag: hash & !Self::SHAPE_BITS | limit.shape().code() }
    }

    /// The full name: `free`, `gold/burst`.
    pub const fn name(&self) -> &LimitName {
        &self.name
    }

    /// The name within its plan: `burst` of `gold/burst`, `free` of `free`.
    pub fn own_name(&self) -> &str {
        let name = self.name.as_str();
        name.split_once('/').map_or(name, |(_, own)| own)
    }

    /// The limit itself.
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// A hash of the name, with the code of the shape in its lowest bits. It is the same in every process of this build, so stores
    /// that look up buckets by hash need not hash the name on every decision, and find the buckets that an earlier process saved.
    pub const fn tag(&self) -> u64 {
        self.tag
    }
}

/// A named list of limits; a request must pass all of them.
///
/// ```
/// # use spile_core as spile;
/// use spile::{Limit, Plan};
///
/// let free = Plan::new("free", Limit::per_second(1).burst(10))?;
/// let gold = Plan::chain("gold", [
///     ("burst", Limit::per_second(1).burst(10)),
///     ("daily", Limit::per_day(10_000)),
/// ])?;
/// assert_eq!(free.limits()[0].name().as_str(), "free");
/// assert_eq!(gold.limits()[1].name().as_str(), "gold/daily");
/// # Ok::<(), spile_core::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    name: PlanName,
    /// A single limit is stored in place: most plans have one, and cloning it then touches no shared counter.
    limits: OneOrMany<NamedLimit>,
}

impl Plan {
    /// A plan of one limit, which has the name of the plan.
    pub fn new(
        name: &str,
        limit: impl TryInto<Limit, Error = impl Into<LimitError>>,
    ) -> Result<Self, PlanError> {
        let name = PlanName::new(name)?;
        let full = LimitName::from(&name);
        let limits = OneOrMany::one(NamedLimit::new(full.clone(), built(&full, limit)?));
        Ok(Self { name, limits })
    }

    /// A plan of several limits with different names. All of them are charged, or none is.
    pub fn chain<'n>(
        name: &str,
        limits: impl IntoIterator<Item = (&'n str, impl TryInto<Limit, Error = impl Into<LimitError>>)>,
    ) -> Result<Self, PlanError> {
        let name = PlanName::new(name)?;
        let mut chain: OneOrMany<NamedLimit> = OneOrMany::new();
        for (own, limit) in limits {
            let full = LimitName::within(&name, own)?;
            if chain.iter().any(|other| *other.name() == full) {
                return Err(PlanError::Duplicate { limit: full });
            }
            chain.push(NamedLimit::new(full.clone(), built(&full, limit)?));
        }
        match chain.len() {
            1..=Charges::MAX => Ok(Self { name, limits: chain }),
            count => Err(PlanError::Count { plan: name, count }),
        }
    }

    /// The name.
    pub const fn name(&self) -> &PlanName {
        &self.name
    }

    /// Replaces the limit of this name. `None` if the plan has no such limit.
    #[must_use]
    pub fn with_limit(mut self, own_name: &str, limit: Limit) -> Option<Self> {
        let place = self.limits.iter_mut().find(|limit| limit.own_name() == own_name)?;
        *place = NamedLimit::new(place.name().clone(), limit);
        Some(self)
    }

    /// Its limits, at least one.
    pub fn limits(&self) -> &[NamedLimit] {
        &self.limits
    }
}

fn built(
    name: &LimitName,
    limit: impl TryInto<Limit, Error = impl Into<LimitError>>,
) -> Result<Limit, PlanError> {
    limit.try_into().map_err(|why| PlanError::Limit { limit: name.to_string(), why: why.into() })
}

/// Why a plan cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The name of the plan or of one of its limits is not safe everywhere.
    #[error(transparent)]
    Name(#[from] NameError),
    /// One of its limits is out of bounds.
    #[error("limit {limit}: {why}")]
    Limit {
        /// The full name of the limit.
        limit: String,
        /// The bound that it breaks.
        why: LimitError,
    },
    /// Two limits of the plan share a name, and would share a bucket.
    #[error("limit {limit} is named twice")]
    Duplicate {
        /// The duplicate name.
        limit: LimitName,
    },
    /// The plan has no limit, or more limits than a chain takes.
    #[error("plan {plan} has {count} limits; a plan takes 1 to {max}", max = Charges::MAX)]
    Count {
        /// The plan.
        plan: PlanName,
        /// The number of its limits.
        count: usize,
    },
}

impl From<std::convert::Infallible> for LimitError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
