//! The decision: allowed or denied, and everything that explains it.

mod failure;

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::time::Duration;

pub use self::failure::{FailurePolicy, FailureReason, UnknownPolicy};
use crate::words::words;
use crate::{
    Amount, Bucket, Charge, Charges, Cost, Limit, LimitName, Micros, NamedLimit, OneOrMany, Outcome, Spent,
};

/// Why a request was allowed or denied.
// One machine word wide: it is the niche of `Option<Decision>`. Around a narrower tag, a decision is moved in pieces of odd sizes, which
// stall the processor.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[repr(u64)]
pub enum Reason {
    /// Every limit covered the cost.
    Ok,
    /// A limit did not cover the cost.
    Limited,
    /// The store failed and the policy lets requests pass.
    FailOpen,
    /// The store failed and the policy refuses requests.
    FailClosed,
    /// The store failed and this machine decided alone.
    Local,
    /// A limit did not cover the cost, but the rule is in shadow mode.
    Shadow,
}

words! {
    Reason:
    Ok = "ok", Limited = "limited", FailOpen = "fail_open", FailClosed = "fail_closed", Local = "local",
    Shadow = "shadow"
}

/// Where a decision came from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DecisionSource {
    /// The store.
    Store,
    /// The embedded store that replaces a failed one.
    Local,
    /// The failure policy alone.
    Policy,
    /// A cached denial of the store that is still valid.
    DenyCache,
    /// Leased tokens, which this instance took from the store in advance.
    Lease,
}

words! {
    DecisionSource:
    Store = "store", Local = "local", Policy = "policy", DenyCache = "deny_cache", Lease = "lease"
}

/// The state of one limit of the chain after the decision. Owns the limit, or borrows it.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitStatus<L = NamedLimit> {
    limit: L,
    cost: Cost,
    bucket: Bucket,
    at: Micros,
}

impl LimitStatus {
    /// Returns the state of this bucket under the limit of `other`, because a bucket keeps its tokens when its limit is scaled.
    #[must_use]
    pub fn under_limit_of(&self, other: &Self) -> Self {
        Self { limit: other.limit.clone(), ..self.clone() }
    }
}

impl<L: Borrow<NamedLimit>> LimitStatus<L> {
    /// The limit's full name.
    pub fn name(&self) -> &LimitName {
        self.limit.borrow().name()
    }

    /// The limit itself.
    pub fn limit(&self) -> &Limit {
        self.limit.borrow().limit()
    }

    /// A hash of the limit's name. See [`NamedLimit::tag`].
    pub fn tag(&self) -> u64 {
        self.limit.borrow().tag()
    }

    /// The time of the decision, by the clock that decided.
    #[inline]
    pub const fn at(&self) -> Micros {
        self.at
    }

    /// The cost that was requested.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// The amount left, rounded down to the [quantum](crate::Unit::quantum).
    pub fn remaining(&self) -> Amount {
        self.available().floored_to(self.limit().quantum())
    }

    /// The debt; zero if the bucket has none.
    pub fn owed(&self) -> Amount {
        self.available().debt()
    }

    fn available(&self) -> Amount {
        self.bucket.available(self.limit(), self.at)
    }

    /// How full the bucket is, from 0 to 1. Zero if it owes tokens.
    pub fn level(&self) -> f64 {
        self.available().max(Amount::ZERO).as_f64() / self.limit().capacity().as_f64()
    }

    /// The time until the bucket covers the cost again; zero if it does now.
    pub fn retry_after(&self) -> Duration {
        Duration::from_micros(self.bucket.wait_for_us(self.limit(), self.limit().asked(self.cost), self.at))
    }

    /// The time within which all tokens come back: how long a drained bucket takes to fill, or how long the window of a quota is.
    pub fn window(&self) -> Duration {
        match self.limit().windows() {
            None => self.limit().fill_time(),
            Some(windows) => Duration::from_micros(windows.window_at(self.at).length_us()),
        }
    }

    /// The time until the bucket is full.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.bucket.wait_for_us(self.limit(), self.limit().capacity(), self.at))
    }

    /// The position of the limit that [binds](Decision::binding) among these; zero for an empty list.
    pub fn binding<'s>(limits: impl IntoIterator<Item = &'s Self>, allowed: bool) -> usize
    where
        L: 's,
    {
        let limits = limits.into_iter().enumerate();
        let binding = if allowed {
            // The number of costs that a bucket covers is a fraction, and cross multiplication compares fractions exactly.
            let fraction = |(index, status): (usize, &'s Self)| {
                let asked = status.cost.amount().max(status.limit().quantum());
                (index, status, i128::from(status.available().micro()), i128::from(asked.micro()))
            };
            let first_to_deny =
                limits.map(fraction).min_by(|(_, one, available, asked), (_, other, more, most)| {
                    let order = (available * most).cmp(&(more * asked));
                    order.then_with(|| other.reset_after().cmp(&one.reset_after()))
                });
            first_to_deny.map(|(index, ..)| index)
        } else {
            let longest = limits.min_by_key(|(_, status)| Reverse(status.retry_after()));
            longest.map(|(index, _)| index)
        };
        binding.unwrap_or(0)
    }
}

/// Allowed or denied, and everything that explains it. Owns the limits that decided, or borrows them.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a decision that is not looked at limits no request"]
pub struct Decision<L = NamedLimit> {
    allowed: bool,
    reason: Reason,
    source: DecisionSource,
    failure: Option<FailureReason>,
    /// Set if the store failed but may have charged.
    may_have_run: bool,
    /// The wait that the failure policy reports if the store failed.
    policy_wait_us: u64,
    binding: u32,
    limits: OneOrMany<LimitStatus<L>>,
}

impl Decision {
    /// Builds the decision from the outcome of a store.
    #[inline]
    pub fn from_outcome(charges: &Charges<'_>, outcome: &Outcome, source: DecisionSource) -> Self {
        match (&charges[..], &outcome.buckets[..]) {
            // Most decisions have one limit; collecting an iterator of one would cost more than deciding.
            ([charge], [bucket]) => {
                let spent = Spent { allowed: outcome.allowed, at: outcome.at, bucket: *bucket };
                Self::from_spent(charge.limit().clone(), charge.cost(), spent, source)
            }
            _ => Self::from_chain(charges, outcome, source),
        }
    }

    #[inline(never)]
    fn from_chain(charges: &Charges<'_>, outcome: &Outcome, source: DecisionSource) -> Self {
        let status = |(charge, &bucket): (&Charge<'_>, &Bucket)| {
            let limit = charge.limit().clone();
            LimitStatus { limit, cost: charge.cost(), bucket, at: outcome.at }
        };
        let limits: OneOrMany<_> = charges.iter().zip(outcome.buckets.iter()).map(status).collect();
        Self::by_store(outcome.allowed, source, LimitStatus::binding(&limits, outcome.allowed), limits)
    }

    /// The state of limits as a peek shows it, at no cost. `None` if there are no limits.
    pub fn standing(limits: impl IntoIterator<Item = LimitStatus>) -> Option<Self> {
        let unasked = |status: LimitStatus| LimitStatus { cost: Cost::ZERO, ..status };
        let limits: OneOrMany<_> = limits.into_iter().map(unasked).collect();
        (!limits.is_empty())
            .then(|| Self::by_store(true, DecisionSource::Store, LimitStatus::binding(&limits, true), limits))
    }

    /// Allows a request because the store failed.
    pub fn fail_open(charges: &Charges<'_>, failure: FailureReason, now: Micros) -> Self {
        // The buckets are unknown: an allowed request shows full ones, a denied request shows empty ones.
        let buckets = charges.iter().map(|charge| Bucket::full(charge.limit().limit(), now)).collect();
        Self::by_policy(charges, &Outcome { allowed: true, at: now, buckets }, Reason::FailOpen, failure)
    }

    /// Denies a request because the store failed.
    pub fn fail_closed(charges: &Charges<'_>, failure: FailureReason, now: Micros, wait: Duration) -> Self {
        let empty = |charge: &Charge<'_>| Bucket::holding(charge.limit().limit(), Amount::ZERO, now);
        let outcome = Outcome { allowed: false, at: now, buckets: charges.iter().map(empty).collect() };
        let policy_wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self { policy_wait_us, ..Self::by_policy(charges, &outcome, Reason::FailClosed, failure) }
    }

    fn by_policy(charges: &Charges<'_>, assumed: &Outcome, reason: Reason, failure: FailureReason) -> Self {
        let decision = Self::from_outcome(charges, assumed, DecisionSource::Policy);
        Self { reason, failure: Some(failure), ..decision }
    }

    /// Marks the decision as made on this machine because the store failed.
    pub fn taken_locally(self, failure: FailureReason) -> Self {
        Self { reason: Reason::Local, source: DecisionSource::Local, failure: Some(failure), ..self }
    }

    /// Sets whether the store may have charged although it failed.
    pub const fn with_may_have_run(mut self, may_have_run: bool) -> Self {
        self.may_have_run = may_have_run;
        self
    }

    /// Applies shadow mode: a denial becomes an allowed decision with the reason `shadow`.
    ///
    /// If the request was denied because the store failed, no limit denied it: it passes as under the policy `allow`.
    #[inline]
    pub fn shadowed(mut self) -> Self {
        if !self.allowed {
            self.allowed = true;
            self.reason = if self.reason == Reason::FailClosed { Reason::FailOpen } else { Reason::Shadow };
        }
        self
    }
}

impl Decision<&NamedLimit> {
    /// Converts into a decision that owns its limits.
    pub fn into_owned(self) -> Decision {
        let own = |LimitStatus { limit, cost, bucket, at }: LimitStatus<&NamedLimit>| {
            let limit = limit.clone();
            LimitStatus { limit, cost, bucket, at }
        };
        let Self { allowed, reason, source, failure, may_have_run, policy_wait_us, binding, limits } = self;
        let limits = limits.into_iter().map(own).collect();
        Decision { allowed, reason, source, failure, may_have_run, policy_wait_us, binding, limits }
    }
}

impl<L> Decision<L> {
    /// Builds the decision from the outcome of a single charge.
    #[inline]
    pub const fn from_spent(limit: L, cost: Cost, spent: Spent, source: DecisionSource) -> Self {
        let status = LimitStatus { limit, cost, bucket: spent.bucket, at: spent.at };
        Self::by_store(spent.allowed, source, 0, OneOrMany::one(status))
    }

    #[inline]
    const fn by_store(
        allowed: bool,
        source: DecisionSource,
        binding: usize,
        limits: OneOrMany<LimitStatus<L>>,
    ) -> Self {
        let (reason, binding) = (if allowed { Reason::Ok } else { Reason::Limited }, binding as u32);
        let (failure, may_have_run, policy_wait_us) = (None, false, 0);
        Self { allowed, reason, source, failure, may_have_run, policy_wait_us, binding, limits }
    }

    /// Whether the request may proceed.
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// Why.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The source of the decision.
    pub const fn source(&self) -> DecisionSource {
        self.source
    }

    /// True if it was decided without the store.
    pub const fn degraded(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the store did not decide. `None` if it did.
    pub const fn failure(&self) -> Option<FailureReason> {
        self.failure
    }

    /// True if the store may have charged although the failure policy decided, because its answer was lost. Asking again
    /// could charge twice.
    pub const fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// The limit that binds: on a denial the one with the longest wait, otherwise the one whose bucket covers the fewest further requests
    /// of this cost, where zero counts as a quantum. A tie goes to the one that takes longer to fill, then to the first of the chain.
    #[inline]
    pub fn binding(&self) -> &LimitStatus<L> {
        match self.limits.only() {
            Some(only) => only,
            None => &self.limits[self.binding as usize],
        }
    }

    /// The position of the binding limit in [`limits`](Self::limits).
    pub const fn binding_index(&self) -> usize {
        self.binding as usize
    }

    /// Each limit of the chain, in the order of the charges.
    pub fn limits(&self) -> &[LimitStatus<L>] {
        &self.limits
    }
}

impl<L: Borrow<NamedLimit>> Decision<L> {
    /// The time of the decision, by the clock of the store, or of this machine if the store failed.
    #[inline]
    pub fn at(&self) -> Micros {
        self.binding().at()
    }

    /// When the store charged the request, by the store's clock. A refund contains it. `None` if the store charged nothing.
    pub fn charged_at(&self) -> Option<Micros> {
        let by_store = matches!(self.source, DecisionSource::Store | DecisionSource::Lease);
        let charged =
            self.reason == Reason::Ok && by_store && self.limits.iter().any(|limit| limit.cost > Cost::ZERO);
        // The parts of a split chain may be decided by different clocks. The earliest is safe: a refund then returns nothing to a later
        // window.
        if charged { self.limits.iter().map(LimitStatus::at).min() } else { None }
    }

    /// The name of the limit that denied. `None` if no limit did.
    pub fn limited_by(&self) -> Option<&LimitName> {
        let limited = match self.reason {
            Reason::Limited | Reason::Shadow => true,
            Reason::Local => !self.allowed,
            _ => false,
        };
        limited.then(|| self.binding().name())
    }

    /// The amount left under the binding limit, rounded down to its [quantum](crate::Unit::quantum).
    pub fn remaining(&self) -> Amount {
        self.binding().remaining()
    }

    /// How long to wait before trying again; zero if the request was allowed.
    pub fn retry_after(&self) -> Duration {
        match self.reason {
            Reason::FailClosed => Duration::from_micros(self.policy_wait_us),
            _ if self.allowed => Duration::ZERO,
            _ => self.binding().retry_after(),
        }
    }

    /// The time until the binding limit's bucket is full.
    pub fn reset_after(&self) -> Duration {
        self.binding().reset_after()
    }
}
