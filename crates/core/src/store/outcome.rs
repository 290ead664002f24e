//! What a store answers: what the step did, and the buckets after it.

use crate::{Bucket, Micros, OneOrMany, PermitId};

/// What one atomic step did, and the buckets after it, in the order of the charges.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether every charge was covered.
    pub allowed: bool,
    /// The store's own time when it decided.
    pub at: Micros,
    /// One bucket per charge. A key without state shows as a full bucket written at `at`.
    pub buckets: OneOrMany<Bucket>,
}

/// What a step about one charge did. The same as an [`Outcome`] of one bucket, without the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spent {
    /// Whether the bucket covered the cost.
    pub allowed: bool,
    /// The store's own time when it decided.
    pub at: Micros,
    /// The bucket afterwards.
    pub bucket: Bucket,
}

impl From<Spent> for Outcome {
    #[inline]
    fn from(Spent { allowed, at, bucket }: Spent) -> Self {
        Self { allowed, at, buckets: OneOrMany::one(bucket) }
    }
}

/// What a partial spend took.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartialOutcome {
    /// Whole tokens taken from every bucket of the chain; zero means that nothing was written.
    pub tokens: u32,
    /// The buckets after it. Allowed if any token was taken.
    pub outcome: Outcome,
}

/// What a late charge did.
#[derive(Clone, Debug, PartialEq)]
pub struct ChargeOutcome {
    /// Whole tokens, rounded up, that were beyond the debt of a limit and so were not charged; the most of any limit.
    pub uncovered: u64,
    /// The buckets after it.
    pub outcome: Outcome,
}

/// What settling a reservation did.
#[derive(Clone, Debug, PartialEq)]
pub struct SettleOutcome {
    /// True if it was settled now. False if it had been settled before, or had expired: then nothing has changed.
    pub settled: bool,
    /// Whole tokens, rounded up, that were beyond the debt of a limit and so were not charged; the most of any limit.
    pub uncovered: u64,
    /// The buckets after it.
    pub outcome: Outcome,
}

/// What a refund with an id did.
#[derive(Clone, Debug, PartialEq)]
pub struct RefundOutcome {
    /// True if it was given now. False if it had been given before: then nothing has changed.
    pub given: bool,
    /// The buckets after it.
    pub outcome: Outcome,
}

/// A permit that is held now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldPermit {
    /// Who holds it, and since when.
    pub id: PermitId,
    /// When it ends unless it is renewed, by the store's clock.
    pub until: Micros,
}
