//! The charges of one request, which are spent together or not at all, and what applies if the store fails.

use std::ops::Add as _;
use std::time::Duration;

use smol_str::SmolStr;
use spile_core::{
    Amount, Charge, ChargeError, Charges, Cost, FailurePolicy, Limit, LimitName, NamedLimit, OneOrMany, Plan,
    Rate,
};

use super::Enforced;
use crate::key::ResolvedKey;
use crate::policy::AskError;
use crate::rule::Rule;

/// The charges of one request, for which rule and tenant, and what applies if the store fails. It owns all data, so
/// that it can be kept until the request is settled.
#[derive(Clone, Debug)]
pub struct Chain {
    rule: Option<SmolStr>,
    tenant: Option<SmolStr>,
    on_failure: Option<FailurePolicy>,
    shadow: bool,
    /// Set if it is a question about a request even if it spends nothing.
    asks: bool,
    /// The factor by which limits are multiplied when they are charged.
    load: f64,
    keys: OneOrMany<ResolvedKey>,
    buckets: OneOrMany<BucketCharge>,
}

/// One bucket of a chain and its cost.
#[derive(Clone, Debug)]
pub struct BucketCharge {
    /// The index of the bucket's key in the chain.
    key: usize,
    limit: NamedLimit,
    cost: Amount,
    /// The cost that the rule sets, which an estimate may have replaced in `cost`.
    rule_cost: Amount,
    /// The final cost of the request does not change it.
    fixed: bool,
    /// Denies every request, at any cost.
    closed: bool,
}

impl Chain {
    /// A chain without charges, for a rule if there is one.
    #[inline]
    pub fn new(rule: Option<&str>) -> Self {
        Self {
            rule: rule.map(SmolStr::new),
            tenant: None,
            on_failure: None,
            shadow: false,
            asks: false,
            load: 1.0,
            keys: OneOrMany::new(),
            buckets: OneOrMany::new(),
        }
    }

    /// Sets the tenant.
    #[must_use]
    #[inline]
    pub fn for_tenant(mut self, tenant: Option<&str>) -> Self {
        self.tenant = tenant.map(SmolStr::new);
        self
    }

    /// Sets the policy if the store fails. `None` leaves that to the limiter.
    #[must_use]
    #[inline]
    pub const fn on_failure(mut self, policy: Option<FailurePolicy>) -> Self {
        self.on_failure = policy;
        self
    }

    /// Sets shadow mode for an empty chain: the decision is counted and never blocks, and spends from buckets that no
    /// enforced chain has. Limits that are concurrencies are not charged.
    #[must_use]
    #[inline]
    pub fn shadow(mut self, shadow: bool) -> Self {
        debug_assert!(self.buckets.is_empty(), "limits are named by the mode that they were charged in");
        self.shadow = shadow;
        self
    }

    /// The chain under the limits that are in force now, for settling charges that were made under earlier ones. `in_force` finds the
    /// limit of a key by its name outside of shadow mode; a limit that is gone stays as it was.
    #[must_use]
    pub fn settling(mut self, in_force: impl Fn(&ResolvedKey, &LimitName) -> Option<Limit>) -> Self {
        for bucket in self.buckets.iter_mut() {
            let (name, former) = (bucket.limit.name().clone(), *bucket.limit.limit());
            if let Some(limit) = in_force(&self.keys[bucket.key], &name.enforced()) {
                bucket.limit = NamedLimit::new(name, limit.settling(&former));
            }
        }
        self
    }

    /// The limit of a key under this name outside of shadow mode.
    pub fn limit_of(&self, key: &ResolvedKey, name: &LimitName) -> Option<Limit> {
        let mut own = self.charged().filter(|(own, _)| *own == key).map(|(_, bucket)| bucket.limit());
        own.find(|limit| limit.name().unshadowed() == name.as_str()).map(|limit| *limit.limit())
    }

    /// Makes it a question about a request even if it spends nothing: whether a token is there. Such a question is
    /// decided and counted like one that spends.
    #[must_use]
    pub(crate) const fn asks(mut self, asks: bool) -> Self {
        self.asks = asks;
        self
    }

    /// Multiplies all limits by `factor`, from 0 to 1.
    #[must_use]
    pub(crate) const fn load(mut self, factor: f64) -> Self {
        self.load = factor;
        self
    }

    /// Charges a key under every limit of the plan. A bucket that is already in the chain is charged once, at the
    /// higher cost.
    #[inline]
    pub fn charge(
        &mut self,
        key: &ResolvedKey,
        plan: &Plan,
        cost: impl Into<Amount>,
    ) -> Result<(), ChargeError> {
        let cost = cost.into();
        self.charge_plan(key, plan, cost, cost, false)
    }

    /// Names the rule, unless an earlier one is charged already.
    pub(crate) fn under(&mut self, rule: &Rule) {
        self.rule.get_or_insert_with(|| rule.id.clone());
    }

    /// Charges a key at `cost` where the rule sets `rule_cost`. If the cost is `fixed`, what the request costs in the end does
    /// not change it.
    #[inline]
    pub(crate) fn charge_plan(
        &mut self,
        key: &ResolvedKey,
        plan: &Plan,
        cost: Amount,
        rule_cost: Amount,
        fixed: bool,
    ) -> Result<(), ChargeError> {
        let shadow = self.shadow;
        // Nothing that shadow mode decides lasts as long as a request, so that it could not release a permit.
        let limits = plan.limits().iter().filter(|limit| !(shadow && limit.limit().is_concurrency()));
        let charge = |key, limit: &NamedLimit| {
            BucketCharge::new(key, named(limit.clone(), shadow), cost, rule_cost, fixed)
        };
        if self.buckets.is_empty() {
            // The limits of one plan all have different buckets, and are never more than a chain can hold.
            let key = self.key_index(key);
            self.buckets = limits.map(|limit| charge(key, limit)).collect();
            return Ok(());
        }
        for limit in limits {
            let key = self.key_index(key);
            self.put(charge(key, limit), Amount::max)?;
        }
        Ok(())
    }

    /// Charges a key under one limit, in the same way. If the cost is `fixed`, what the request costs in the end does not
    /// change it.
    #[inline]
    pub fn charge_limit(
        &mut self,
        key: &ResolvedKey,
        limit: NamedLimit,
        cost: impl Into<Amount>,
        fixed: bool,
    ) -> Result<(), ChargeError> {
        let (key, limit, cost) = (self.key_index(key), named(limit, self.shadow), cost.into());
        self.put(BucketCharge::new(key, limit, cost, cost, fixed), Amount::max).map(drop)
    }

    /// Adds a bucket that denies every request.
    pub(crate) fn close(&mut self, key: &ResolvedKey, limit: NamedLimit) -> Result<(), ChargeError> {
        let key = self.key_index(key);
        let bucket =
            BucketCharge { closed: true, ..BucketCharge::new(key, limit, Amount::ZERO, Amount::ZERO, true) };
        self.put(bucket, Amount::max).map(drop)
    }

    /// Adds the charges of another chain, under the stricter failure policy. Costs for the same bucket add up. Returns the index of
    /// each added bucket.
    pub(crate) fn add(&mut self, other: &Self) -> Result<Vec<usize>, ChargeError> {
        self.asks |= other.asks;
        if let Some(policy) = other.on_failure {
            self.tighten_failure_policy(policy);
        }
        let add = |bucket: &BucketCharge| {
            let key = self.key_index(&other.keys[bucket.key]);
            self.put(BucketCharge { key, ..bucket.clone() }, Amount::add)
        };
        other.buckets.iter().map(add).collect()
    }

    /// If the store fails, uses the stricter one of the current policy and this one.
    pub(crate) fn tighten_failure_policy(&mut self, policy: FailurePolicy) {
        self.on_failure = Some(self.on_failure.map_or(policy, |own| own.stricter(policy)));
    }

    /// The rule that applies.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The tenant that sent the request.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The policy if the store fails, or `None` if that is left to the limiter.
    pub const fn failure_policy(&self) -> Option<FailurePolicy> {
        self.on_failure
    }

    /// Whether it is in shadow mode.
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether nothing is charged.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Whether it only looks: all costs are zero and it does not ask about a request, or a bucket can never pass.
    pub fn is_peek(&self) -> bool {
        let takes_permit = |bucket: &BucketCharge| bucket.limit.limit().is_concurrency();
        let spends_nothing =
            || self.buckets.iter().all(|bucket| bucket.cost == Amount::ZERO || takes_permit(bucket));
        (!self.asks && spends_nothing()) || self.never_passes().is_some()
    }

    /// Whether a bucket denies every request.
    pub(crate) fn is_closed(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.closed)
    }

    /// The highest cost of a bucket that what the request costs in the end can change.
    pub fn highest_cost(&self) -> Amount {
        let costs = self.buckets.iter().filter(|bucket| !bucket.fixed).map(BucketCharge::cost);
        costs.max().unwrap_or_default()
    }

    /// Whether a bucket of this key is charged.
    pub(crate) fn pays(&self, key: &ResolvedKey) -> bool {
        self.buckets.iter().any(|bucket| self.keys[bucket.key] == *key)
    }

    /// The buckets, in the order of a decision's limits.
    pub fn buckets(&self) -> &[BucketCharge] {
        &self.buckets
    }

    /// The buckets, each with its key.
    pub fn charged(&self) -> impl Iterator<Item = (&ResolvedKey, &BucketCharge)> {
        self.buckets.iter().map(|bucket| (&self.keys[bucket.key], bucket))
    }

    /// The first limit that is a concurrency, so that the request needs a permit.
    #[inline]
    pub fn first_permit(&self) -> Option<&NamedLimit> {
        self.buckets.iter().map(BucketCharge::limit).find(|limit| limit.limit().is_concurrency())
    }

    /// How long a permit is held unless it is renewed: the shortest hold time of its limits. `None` if it takes no permit.
    pub fn hold(&self) -> Option<Duration> {
        self.buckets.iter().filter_map(|bucket| bucket.limit.limit().hold()).min()
    }

    /// Fails if a bucket can never pass.
    pub(crate) fn passable(self) -> Result<Self, AskError> {
        match self.never_passes() {
            Some(bucket) => Err(AskError::NeverPasses(bucket.above_capacity())),
            None => Ok(self),
        }
    }

    /// The first bucket whose cost is above its capacity, or that is closed.
    #[inline]
    pub fn never_passes(&self) -> Option<&BucketCharge> {
        self.buckets.iter().find(|bucket| bucket.can_never_pass())
    }

    /// The charges. If one of them can never pass, all costs are zero, so that nothing is spent.
    ///
    /// # Panics
    /// If the chain is [empty](Self::is_empty).
    #[inline]
    pub fn charges(&self) -> Charges<'_> {
        // Most chains have one limit. Collecting an iterator of one would cost more than the charge.
        if let Some(bucket) = self.buckets.only()
            && !bucket.can_never_pass()
        {
            return Charges::from(self.charge_of(bucket, bucket.cost, bucket.scaled(self.load)));
        }
        let looks = self.never_passes().is_some();
        self.charges_with(|bucket| if looks { Amount::ZERO } else { bucket.cost }, self.load)
    }

    /// The charges at other costs, each at most the capacity of its limit, under limits that are not scaled. For
    /// refunds, and for charges once the real cost is known.
    ///
    /// # Panics
    /// If the chain is [empty](Self::is_empty).
    pub fn charges_at(&self, cost: impl Fn(&BucketCharge) -> Amount) -> Charges<'_> {
        self.charges_with(cost, 1.0)
    }

    /// The charges at the same cost for each bucket. Fails if the cost is above the capacity of a limit.
    pub fn priced(&self, cost: impl Into<Amount>) -> Result<Charges<'_>, ChargeError> {
        let amount = cost.into();
        let charge = |bucket: &BucketCharge| {
            let above = |_| BucketCharge { cost: amount, ..bucket.clone() }.above_capacity();
            let cost = Cost::new(amount).map_err(above)?;
            Charge::new(self.keys[bucket.key].as_key(), bucket.limit.clone(), cost)
        };
        Charges::new(self.buckets.iter().map(charge).collect::<Result<Vec<_>, _>>()?)
    }

    /// The charges for what has been used already, at any cost, under limits that are not scaled.
    ///
    /// # Panics
    /// If the chain is [empty](Self::is_empty).
    pub fn late_charges(&self, cost: impl Fn(&BucketCharge) -> Amount) -> Charges<'_> {
        let charge = |bucket: &BucketCharge| {
            let cost = Cost::saturating(cost(bucket));
            Charge::late(self.keys[bucket.key].as_key(), bucket.limit.clone(), cost)
        };
        Charges::distinct(self.buckets.iter().map(charge)).expect("a chain that is asked has 1 to 32 buckets")
    }

    fn charges_with(&self, cost: impl Fn(&BucketCharge) -> Amount, load: f64) -> Charges<'_> {
        let charge = |bucket: &BucketCharge| self.charge_of(bucket, cost(bucket), bucket.scaled(load));
        Charges::distinct(self.buckets.iter().map(charge)).expect("a chain that is asked has 1 to 32 buckets")
    }

    #[inline]
    fn charge_of(&self, bucket: &BucketCharge, cost: Amount, limit: NamedLimit) -> Charge<'_> {
        let cost = Cost::saturating(cost.min(limit.limit().capacity()));
        let key = self.keys[bucket.key].as_key();
        Charge::new(key, limit, cost).expect("the cost is within the capacity")
    }

    #[inline]
    fn key_index(&mut self, key: &ResolvedKey) -> usize {
        self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.keys.len() - 1
        })
    }

    /// Adds a bucket to the chain and returns its index. If it is there already, it is charged once, at its costs as `combined`.
    #[inline]
    fn put(
        &mut self,
        bucket: BucketCharge,
        combined: fn(Amount, Amount) -> Amount,
    ) -> Result<usize, ChargeError> {
        let same =
            |other: &BucketCharge| other.key == bucket.key && other.limit.name() == bucket.limit.name();
        let Some(at) = self.buckets.iter().position(same) else {
            if self.buckets.len() == Charges::MAX {
                return Err(ChargeError::TooMany);
            }
            self.buckets.push(bucket);
            return Ok(self.buckets.len() - 1);
        };
        let there = &mut self.buckets[at];
        there.closed |= bucket.closed;
        there.fixed &= bucket.fixed;
        // If two limits share a bucket, the smaller one applies.
        if bucket.limit.limit().capacity() < there.limit.limit().capacity() {
            there.limit = bucket.limit;
        }
        there.cost = combined(there.cost, bucket.cost);
        there.rule_cost = combined(there.rule_cost, bucket.rule_cost);
        Ok(at)
    }
}

/// A chain without charges is unlimited by its rule.
impl From<Chain> for Enforced {
    fn from(chain: Chain) -> Self {
        match chain {
            Chain { rule, tenant, buckets, .. } if buckets.is_empty() => Self::Unlimited { rule, tenant },
            chain => Self::Charged(chain),
        }
    }
}

/// The limit under the name that its bucket has in this mode.
#[inline]
fn named(limit: NamedLimit, shadow: bool) -> NamedLimit {
    if shadow { NamedLimit::new(limit.name().shadowed(), *limit.limit()) } else { limit }
}

impl BucketCharge {
    /// A bucket of the chain. A concurrency takes one permit at any cost.
    #[inline]
    fn new(key: usize, limit: NamedLimit, cost: Amount, rule_cost: Amount, fixed: bool) -> Self {
        let plain = Self { key, limit, cost, rule_cost, fixed, closed: false };
        if !plain.limit.limit().is_concurrency() {
            return plain;
        }
        Self { cost: Amount::TOKEN, rule_cost: Amount::TOKEN, fixed: true, ..plain }
    }

    /// The limit, with its name.
    pub const fn limit(&self) -> &NamedLimit {
        &self.limit
    }

    /// The cost.
    pub const fn cost(&self) -> Amount {
        self.cost
    }

    /// The cost that the rule sets. It differs from [`cost`](Self::cost) if the request was charged an estimate.
    pub const fn rule_cost(&self) -> Amount {
        self.rule_cost
    }

    /// True if the rule sets the cost, also once the final cost is known.
    pub const fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// The cost in the end, if the request turns out to cost `actual`.
    pub const fn cost_at(&self, actual: Amount) -> Amount {
        if self.fixed { self.cost } else { actual }
    }

    /// The error for a cost that is above the capacity.
    pub fn above_capacity(&self) -> ChargeError {
        ChargeError::CostAboveCapacity {
            limit: self.limit.name().clone(),
            cost: self.cost,
            capacity: self.limit.limit().capacity(),
        }
    }

    /// True if waiting cannot help: the cost is above the capacity, or the bucket is closed.
    #[inline]
    pub fn can_never_pass(&self) -> bool {
        self.closed || self.cost > self.limit.limit().capacity()
    }

    /// The limit with its rate and burst multiplied by `factor`. Its capacity stays at least as large as the cost if
    /// the whole limit covers it, so that such a request passes later. The bucket stays the same, so that no tokens are
    /// lost or gained when the factor changes.
    ///
    /// A quota has been sold, and does not shrink. Permits come back only when the work is done, so fewer of them would not be
    /// noticed soon.
    #[inline]
    fn scaled(&self, factor: f64) -> NamedLimit {
        match self.limit.limit().rate() {
            Some(rate) if factor < 1.0 => self.scaled_down(rate, factor),
            _ => self.limit.clone(),
        }
    }

    #[cold]
    fn scaled_down(&self, rate: &Rate, factor: f64) -> NamedLimit {
        // Without a lease: each change of the factor would drop the tokens that were leased under the former limit.
        let whole = self.limit.limit().without_lease();
        let (refill, period, quantum) = (rate.refill(), rate.period(), whole.quantum());
        let capacity =
            Amount::from_micro((whole.capacity().micro() as f64 * factor) as i64).floored_to(quantum);
        let capacity = capacity.max(self.cost).max(quantum).min(whole.capacity());
        // As many tokens in a longer period. If the bucket would take too long to fill, only the burst is reduced.
        let longer = Duration::from_micros((period.as_micros() as f64 / factor).ceil() as u64);
        let cut =
            whole.resized(capacity, refill, longer).or_else(|_| whole.resized(capacity, refill, period));
        NamedLimit::new(self.limit.name().clone(), cut.unwrap_or(whole))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spile_core::{Limit, Plan};

    use super::*;

    fn plan(name: &str, capacity: u64) -> Plan {
        Plan::new(name, Limit::per_second(1).burst(capacity)).expect("a plan")
    }

    fn key(name: &str) -> ResolvedKey {
        ResolvedKey::of(&["static:", name])
    }

    #[test]
    fn a_bucket_that_two_rules_charge_is_charged_once_at_the_higher_cost() {
        let mut chain = Chain::new(Some("a"));
        for (name, cost) in [("free", 2), ("pro", 1), ("free", 5), ("free", 3)] {
            chain.charge(&key("ann"), &plan(name, 10), cost).expect("room for it");
        }
        chain.charge(&key("bob"), &plan("free", 10), 1).expect("room for it");
        let costs: Vec<u64> =
            chain.charges().iter().map(|charge| charge.cost().amount().whole_tokens()).collect();
        assert_eq!(costs, [5, 1, 1]);
    }

    #[test]
    fn chains_that_are_added_sum_up_in_the_buckets_where_they_meet() {
        let mut all = Chain::new(Some("a"));
        let mut one = Chain::new(Some("a"));
        one.charge(&key("ann"), &plan("free", 10), 4).expect("room for it");
        assert_eq!(all.add(&one), Ok(vec![0]));
        assert_eq!(all.add(&one), Ok(vec![0]));
        assert_eq!(all.buckets()[0].cost(), 8);
        assert!(all.never_passes().is_none());
        assert_eq!(all.add(&one), Ok(vec![0]));
        assert!(all.never_passes().is_some());
        assert!(all.charges().iter().all(|charge| charge.cost() == Cost::ZERO), "it is only looked at");
    }

    #[test]
    fn a_closed_bucket_lets_nothing_pass() {
        let mut chain = Chain::new(Some("a"));
        chain.close(&key("ann"), plan("free", 10).limits()[0].clone()).expect("room for it");
        assert!(chain.never_passes().is_some());
    }

    #[test]
    fn a_chain_has_a_bound() {
        let mut chain = Chain::new(None);
        for count in 0..32 {
            chain.charge(&key(&count.to_string()), &plan("free", 10), 1).expect("room for it");
        }
        assert_eq!(chain.charge(&key("more"), &plan("free", 10), 1), Err(ChargeError::TooMany));
        assert_eq!(chain.charge(&key("7"), &plan("free", 10), 2), Ok(()), "that bucket is there already");
    }

    proptest! {
        #[test]
        fn a_scaled_limit_covers_what_the_whole_one_covers_and_no_more(
            capacity in 1_u64..10_000, cost in 0_u64..20_000, factor in 0.001_f64..1.0, refill in 1_u64..1_000,
            period in prop::sample::select(vec![1_u64, 7, 60, 3_600, 86_400]),
        ) {
            let whole = Limit::per(refill, Duration::from_secs(period)).burst(capacity);
            let Ok(plan) = Plan::new("free", whole) else { return Ok(()) };
            let mut chain = Chain::new(None).load(factor);
            chain.charge(&key("ann"), &plan, cost).expect("room for it");
            prop_assert_eq!(chain.never_passes().is_some(), cost > capacity);
            let limit = *chain.charges()[0].limit().limit();
            prop_assert!(limit.capacity() <= Amount::from(capacity));
            let cut = ((capacity as f64 * factor) as u64).max(1);
            prop_assert_eq!(limit.capacity(), cut.max(cost.min(capacity)).min(capacity));
            // Its rate is cut as well, unless it would take too long to fill then.
            let whole = *plan.limits()[0].limit();
            let [rate, whole_rate] = [limit, whole].map(|limit| limit.rate().expect("a rate").per_second());
            let too_long = limit.capacity().as_f64() / (whole_rate * factor) > Limit::MAX_FILL.as_secs_f64() * 0.99;
            prop_assert!(rate < whole_rate || factor > 0.999_999 || too_long);
            if cost <= capacity {
                prop_assert!(limit.capacity() >= Amount::from(cost));
            }
        }
    }
}
