//! The answer: allowed or denied, and everything that explains it.

mod failure;

use std::time::Duration;

pub use self::failure::{FailurePolicy, FailureReason, UnknownPolicy};
use crate::{
    Bucket, Charge, Charges, Cost, Few, Key, Limit, LimitName, MicroTokens, Micros, NamedLimit, Outcome,
};

/// Why the answer is what it is.
// As wide as a word: it is what tells `Some(decision)` from `None`, and a decision around a narrow tag is moved in odd
// pieces, at which the processor stalls.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[repr(u64)]
pub enum Reason {
    /// Every limit covered the cost.
    Ok,
    /// A limit did not.
    Limited,
    /// The store failed and the policy lets requests pass.
    FailOpen,
    /// The store failed and the policy refuses requests.
    FailClosed,
    /// The store failed and this machine decided alone.
    Local,
    /// A limit did not cover the cost, but the rule only watches.
    Shadow,
}

impl Reason {
    /// The word that the API and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::FailOpen => "fail_open",
            Self::FailClosed => "fail_closed",
            Self::Local => "local",
            Self::Shadow => "shadow",
        }
    }
}

/// Who gave the answer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    Store,
    /// The embedded store that stands in for a failed one.
    Local,
    /// The failure policy alone.
    Policy,
}

impl Source {
    /// The label value that metrics carry.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Local => "local",
            Self::Policy => "policy",
        }
    }
}

/// How one limit of the chain stands after the decision.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitStatus {
    limit: NamedLimit,
    cost: Cost,
    bucket: Bucket,
    at: Micros,
}

impl LimitStatus {
    #[inline]
    fn new(charge: &Charge<'_>, bucket: Bucket, at: Micros) -> Self {
        Self { limit: charge.limit().clone(), cost: charge.cost(), bucket, at }
    }

    /// The same bucket at the same moment, under the limit of `other`: a bucket keeps its tokens while its limit is scaled.
    #[must_use]
    pub fn under_limit_of(&self, other: &Self) -> Self {
        Self { limit: other.limit.clone(), ..self.clone() }
    }

    /// The limit's full name.
    pub const fn name(&self) -> &LimitName {
        self.limit.name()
    }

    /// The limit itself.
    pub const fn limit(&self) -> &Limit {
        self.limit.limit()
    }

    /// A hash of the limit's name. See [`NamedLimit::tag`].
    pub const fn tag(&self) -> u64 {
        self.limit.tag()
    }

    /// When it stood so, by the clock of whoever decided.
    #[inline]
    pub const fn at(&self) -> Micros {
        self.at
    }

    /// What the decision asked of it.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// Whole tokens left.
    pub fn remaining(&self) -> u64 {
        self.bucket.available(self.limit(), self.at).whole_tokens()
    }

    /// How full the bucket is, from 0 to 1.
    pub fn level(&self) -> f64 {
        let there = self.bucket.available(self.limit(), self.at).get();
        there as f64 / self.limit().capacity_micro().get() as f64
    }

    /// The time until the bucket covers the cost again; zero where it does now.
    pub fn retry_after(&self) -> Duration {
        Duration::from_micros(self.bucket.wait_for_us(self.limit(), self.cost.micro(), self.at))
    }

    /// The time until the bucket is full.
    pub fn reset_after(&self) -> Duration {
        let full = self.limit().capacity_micro();
        Duration::from_micros(self.bucket.wait_for_us(self.limit(), full, self.at))
    }
}

/// Allowed or denied, and everything that explains it.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a decision that nobody looks at limits nobody"]
pub struct Decision {
    allowed: bool,
    reason: Reason,
    source: Source,
    failure: Option<FailureReason>,
    /// Set if the store failed after it may have charged.
    may_have_run: bool,
    /// What the policy says to wait where no bucket could be asked.
    policy_wait_us: u64,
    binding: u32,
    limits: Few<LimitStatus>,
}

impl Decision {
    /// The decision that a store's outcome amounts to.
    #[inline]
    pub fn from_outcome(charges: &Charges<'_>, outcome: &Outcome, source: Source) -> Self {
        match (&charges[..], &outcome.buckets[..]) {
            // Most decisions have one limit; collecting an iterator of one would cost more than deciding.
            ([charge], [bucket]) => {
                let status = LimitStatus::new(charge, *bucket, outcome.at);
                Self::by_store(outcome.allowed, source, 0, Few::one(status))
            }
            _ => Self::from_chain(charges, outcome, source),
        }
    }

    #[inline(never)]
    fn from_chain(charges: &Charges<'_>, outcome: &Outcome, source: Source) -> Self {
        let status = |(charge, &bucket): (&Charge<'_>, &Bucket)| LimitStatus::new(charge, bucket, outcome.at);
        let limits: Few<_> = charges.iter().zip(outcome.buckets.iter()).map(status).collect();
        Self::by_store(outcome.allowed, source, binding(&limits, outcome.allowed), limits)
    }

    #[inline]
    const fn by_store(allowed: bool, source: Source, binding: u32, limits: Few<LimitStatus>) -> Self {
        let reason = if allowed { Reason::Ok } else { Reason::Limited };
        Self {
            allowed,
            reason,
            source,
            failure: None,
            may_have_run: false,
            policy_wait_us: 0,
            binding,
            limits,
        }
    }

    /// How limits stand by a store, with nothing asked of them: what a look would say. `None` if there is no limit.
    pub fn standing(limits: impl IntoIterator<Item = LimitStatus>) -> Option<Self> {
        let unasked = |status: LimitStatus| LimitStatus { cost: Cost::ZERO, ..status };
        let limits: Few<_> = limits.into_iter().map(unasked).collect();
        (!limits.is_empty()).then(|| Self::by_store(true, Source::Store, binding(&limits, true), limits))
    }

    /// The decision about what nothing limits, for callers that want a decision all the same. No store was asked.
    ///
    /// # Panics
    /// Never: what it is made of is within bounds.
    pub fn unlimited(now: Micros) -> Self {
        let most = u64::from(Limit::MAX_TOKENS);
        let limit = Limit::per_second(most).build().expect("the most tokens that a limit can hold");
        let name = LimitName::new("unlimited").expect("a word is a name");
        let key = Key::new("unlimited").expect("a word is a key");
        let charges = Charges::one(key, &NamedLimit::new(name, limit), Cost::ZERO);
        let outcome = Outcome { allowed: true, at: now, buckets: Few::one(Bucket::full(&limit, now)) };
        Self::from_outcome(&charges.expect("nothing is charged"), &outcome, Source::Policy)
    }

    /// The decision that lets a request pass because the store failed.
    pub fn fail_open(charges: &Charges<'_>, failure: FailureReason, now: Micros) -> Self {
        Self::by_policy(charges, true, Reason::FailOpen, failure, now, 0)
    }

    /// The decision that refuses a request because the store failed.
    pub fn fail_closed(charges: &Charges<'_>, failure: FailureReason, now: Micros, wait: Duration) -> Self {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self::by_policy(charges, false, Reason::FailClosed, failure, now, wait_us)
    }

    fn by_policy(
        charges: &Charges<'_>,
        allowed: bool,
        reason: Reason,
        failure: FailureReason,
        now: Micros,
        policy_wait_us: u64,
    ) -> Self {
        // What is there is not known. Whoever passes is shown full buckets, whoever is refused empty ones.
        let empty = Bucket::new(MicroTokens::default(), now);
        let stand = |charge: &Charge<'_>| {
            if allowed { Bucket::full(charge.limit().limit(), now) } else { empty }
        };
        let outcome = Outcome { allowed, at: now, buckets: charges.iter().map(stand).collect() };
        let decision = Self::from_outcome(charges, &outcome, Source::Policy);
        Self { reason, failure: Some(failure), policy_wait_us, ..decision }
    }

    /// The same decision, taken on this machine because the store failed.
    pub fn taken_locally(mut self, failure: FailureReason) -> Self {
        self.reason = Reason::Local;
        self.source = Source::Local;
        self.failure = Some(failure);
        self
    }

    /// The same decision, after a failure of the store in which it may have charged all the same, or not.
    pub const fn with_may_have_run(mut self, may_have_run: bool) -> Self {
        self.may_have_run = may_have_run;
        self
    }

    /// The same decision under a rule that only watches: a denial lets the request pass and says so.
    ///
    /// Where it was the failing store that refused, no limit denied anything: the request passes as it would
    /// under the policy `allow`.
    #[inline]
    pub fn shadowed(mut self) -> Self {
        if !self.allowed {
            self.allowed = true;
            self.reason = if self.reason == Reason::FailClosed { Reason::FailOpen } else { Reason::Shadow };
        }
        self
    }

    /// Whether the request may proceed.
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// Why.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Who decided.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Whether it was decided without the store.
    pub const fn degraded(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the store was not the one to decide.
    pub const fn failure(&self) -> Option<FailureReason> {
        self.failure
    }

    /// True if the store may have charged although the failure policy decided: its answer was lost, not its work. Such
    /// a request must not be asked about again, for that could charge it twice.
    pub const fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// The limit that binds: on a denial the one with the longest wait, else the one with the fewest tokens
    /// left.
    #[inline]
    pub fn binding(&self) -> &LimitStatus {
        match self.limits.only() {
            Some(only) => only,
            None => &self.limits[self.binding as usize],
        }
    }

    /// Where in [`limits`](Self::limits) the one that binds stands.
    pub const fn binding_index(&self) -> usize {
        self.binding as usize
    }

    /// When it was decided, by the clock of whoever decided.
    #[inline]
    pub fn at(&self) -> Micros {
        self.binding().at()
    }

    /// Each limit of the chain, in the order asked.
    pub fn limits(&self) -> &[LimitStatus] {
        &self.limits
    }

    /// The name of the limit that denied, if one did.
    pub fn limited_by(&self) -> Option<&LimitName> {
        let limited = match self.reason {
            Reason::Limited | Reason::Shadow => true,
            Reason::Local => !self.allowed,
            _ => false,
        };
        limited.then(|| self.binding().name())
    }

    /// Whole tokens left under the binding limit.
    pub fn remaining(&self) -> u64 {
        self.binding().remaining()
    }

    /// How long to wait before trying again; zero where the request was allowed.
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

fn binding(limits: &[LimitStatus], allowed: bool) -> u32 {
    let indexed = limits.iter().enumerate();
    let first_of = |best: Option<(usize, &LimitStatus)>| best.map_or(0, |(index, _)| index as u32);
    if allowed {
        first_of(indexed.min_by_key(|(_, status)| status.remaining()))
    } else {
        // `max_by_key` keeps the last of equals; reversed, the first limit of the chain is the one named.
        first_of(indexed.rev().max_by_key(|(_, status)| status.retry_after()))
    }
}
