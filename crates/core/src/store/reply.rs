//! The reply of a store, and the typed results of [`StoreExt`](crate::StoreExt).

use crate::{Amount, Bucket, Micros, OneOrMany, PermitId};

/// The result of one atomic step, and the buckets after it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Whether it was done.
    pub verdict: Verdict,
    /// The amount that a partial spend took, or the part of a late charge beyond the allowed debt, which was not charged. Zero for
    /// other operations.
    pub amount: Amount,
    /// The time of the decision, by the clock of the store.
    pub at: Micros,
    /// One bucket per charge, in the same order. A key without state has a full bucket.
    pub buckets: OneOrMany<Bucket>,
    /// The amount at which each charge of a reservation was settled, now or before. Empty for other operations.
    pub settled: Box<[Amount]>,
}

/// Whether an operation was done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The operation was done.
    Done,
    /// A limit did not cover its cost, or the permit was not held. Nothing was spent.
    Denied,
    /// The operation had been done before. Nothing has changed.
    Before,
    /// The time to settle the reservation was over: it stays charged as reserved.
    Expired,
    /// The store has no such reservation. Nothing has changed.
    Unknown,
}

impl Verdict {
    /// [`Done`](Self::Done) if true, otherwise [`Denied`](Self::Denied).
    pub const fn done_if(done: bool) -> Self {
        if done { Self::Done } else { Self::Denied }
    }
}

impl Reply {
    /// The reply to an operation that has no amount.
    pub fn new(verdict: Verdict, at: Micros, buckets: OneOrMany<Bucket>) -> Self {
        Self { verdict, amount: Amount::ZERO, at, buckets, settled: Box::default() }
    }

    /// Converts into the outcome for a caller that asks whether it may proceed.
    #[inline]
    pub fn into_outcome(self) -> Outcome {
        self.into()
    }
}

impl From<Reply> for Outcome {
    #[inline]
    fn from(reply: Reply) -> Self {
        Self { allowed: reply.verdict != Verdict::Denied, at: reply.at, buckets: reply.buckets }
    }
}

impl From<Reply> for () {
    fn from(_: Reply) {}
}

/// Whether a chain may proceed, and the buckets afterwards, in the order of the charges.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// True if every charge was covered.
    pub allowed: bool,
    /// The time of the decision, by the clock of the store.
    pub at: Micros,
    /// One bucket per charge.
    pub buckets: OneOrMany<Bucket>,
}

/// The outcome for a single charge, without a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spent {
    /// True if the bucket covered the cost.
    pub allowed: bool,
    /// The time of the decision, by the clock of the store.
    pub at: Micros,
    /// The bucket afterwards.
    pub bucket: Bucket,
}

impl From<Spent> for Reply {
    #[inline]
    fn from(Spent { allowed, at, bucket }: Spent) -> Self {
        Self::new(Verdict::done_if(allowed), at, OneOrMany::one(bucket))
    }
}

/// The outcome of a partial spend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartialOutcome {
    /// The amount taken from every bucket of the chain; zero means that nothing was taken.
    pub granted: Amount,
    /// The buckets after it. Allowed if anything was taken.
    pub outcome: Outcome,
}

/// The outcome of a late charge.
#[derive(Clone, Debug, PartialEq)]
pub struct ChargeOutcome {
    /// The part of the charge beyond the allowed debt, which was not charged. With several limits, the largest such amount.
    pub uncovered: Amount,
    /// The buckets after it.
    pub outcome: Outcome,
}

/// The outcome of settling a reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct SettleOutcome {
    /// [`Done`](Verdict::Done) if it was settled now, else [`Before`](Verdict::Before), [`Expired`](Verdict::Expired) or
    /// [`Unknown`](Verdict::Unknown).
    pub verdict: Verdict,
    /// The part of the charge beyond the allowed debt, which was not charged. With several limits, the largest such amount.
    pub uncovered: Amount,
    /// The amount at which each charge was settled, now or before.
    pub settled: Box<[Amount]>,
    /// The buckets after it.
    pub outcome: Outcome,
}

/// The outcome of a refund with an id.
#[derive(Clone, Debug, PartialEq)]
pub struct RefundOutcome {
    /// True if it was given now. False if it had been given before; then nothing has changed.
    pub given: bool,
    /// The buckets after it.
    pub outcome: Outcome,
}

impl From<Reply> for PartialOutcome {
    fn from(reply: Reply) -> Self {
        Self { granted: reply.amount, outcome: reply.into_outcome() }
    }
}

impl From<Reply> for ChargeOutcome {
    fn from(reply: Reply) -> Self {
        Self { uncovered: reply.amount, outcome: reply.into_outcome() }
    }
}

impl From<Reply> for SettleOutcome {
    fn from(mut reply: Reply) -> Self {
        let settled = std::mem::take(&mut reply.settled);
        Self { verdict: reply.verdict, uncovered: reply.amount, settled, outcome: reply.into_outcome() }
    }
}

impl From<Reply> for RefundOutcome {
    fn from(reply: Reply) -> Self {
        Self { given: reply.verdict == Verdict::Done, outcome: reply.into_outcome() }
    }
}

/// A permit that is held now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldPermit {
    /// Its id, which names the holder and the time of acquisition.
    pub id: PermitId,
    /// When it expires unless it is renewed, by the clock of the store.
    pub until: Micros,
}
