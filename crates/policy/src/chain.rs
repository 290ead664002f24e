//! Charges that are spent together or not at all, and on what terms: the question that a limiter answers.

use std::time::Duration;

use smol_str::SmolStr;
use spile_core::{Charge, ChargeError, Charges, Cost, FailurePolicy, Few, Limit, NamedLimit, Plan};

use crate::key::ResolvedKey;

/// What is charged for one question, in whose name, and what holds if the store fails. It owns all of it, so that it
/// can be kept until the request is settled.
#[derive(Clone, Debug)]
pub struct Chain {
    rule: Option<SmolStr>,
    tenant: Option<SmolStr>,
    on_failure: Option<FailurePolicy>,
    shadow: bool,
    /// What limits are multiplied by when they are charged.
    load: f64,
    keys: Few<ResolvedKey>,
    lines: Few<Line>,
}

/// One bucket of a chain, and what it is to pay.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which of the chain's keys pays.
    key: usize,
    limit: NamedLimit,
    cost: u64,
    /// Lets nothing pass, however little it costs.
    closed: bool,
}

/// The buckets of a chain that one key pays at one cost.
#[derive(Clone, Debug)]
pub struct Part {
    /// What each of them pays.
    pub cost: u64,
    /// They alone.
    pub chain: Chain,
    /// Where they are among the [lines](Chain::lines) of the whole chain.
    pub places: Vec<usize>,
}

/// What happens if two charges of a chain meet in one bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Meeting {
    /// They are one use of the bucket, at the higher cost.
    Highest,
    /// They are two uses.
    Sum,
}

impl Chain {
    /// A chain without charges, asked in the name of a rule, if there is one.
    #[inline]
    pub fn new(rule: Option<&str>) -> Self {
        Self {
            rule: rule.map(SmolStr::new),
            tenant: None,
            on_failure: None,
            shadow: false,
            load: 1.0,
            keys: Few::new(),
            lines: Few::new(),
        }
    }

    /// The same on behalf of this tenant.
    #[must_use]
    #[inline]
    pub fn for_tenant(mut self, tenant: Option<&str>) -> Self {
        self.tenant = tenant.map(SmolStr::new);
        self
    }

    /// The same, decided by this policy if the store fails. `None` leaves that to the limiter.
    #[must_use]
    #[inline]
    pub const fn on_failure(mut self, policy: Option<FailurePolicy>) -> Self {
        self.on_failure = policy;
        self
    }

    /// The same, which only watches.
    #[must_use]
    #[inline]
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// The same under limits that are multiplied by `factor`, from 0 to 1.
    #[must_use]
    pub(crate) const fn load(mut self, factor: f64) -> Self {
        self.load = factor;
        self
    }

    /// Charges a key under every limit of the plan. A bucket that the chain has already is charged once, at the higher
    /// cost.
    #[inline]
    pub fn charge(&mut self, key: &ResolvedKey, plan: &Plan, tokens: u64) -> Result<(), ChargeError> {
        if self.lines.is_empty() {
            // The limits of one plan have buckets of their own, and are no more than a chain takes.
            let key = self.place_of(key);
            let line = |limit: &NamedLimit| Line { key, limit: limit.clone(), cost: tokens, closed: false };
            self.lines = plan.limits().iter().map(line).collect();
            return Ok(());
        }
        plan.limits().iter().try_for_each(|limit| self.charge_limit(key, limit.clone(), tokens))
    }

    /// The same for one limit.
    #[inline]
    pub fn charge_limit(
        &mut self,
        key: &ResolvedKey,
        limit: NamedLimit,
        tokens: u64,
    ) -> Result<(), ChargeError> {
        let key = self.place_of(key);
        self.put(Line { key, limit, cost: tokens, closed: false }, Meeting::Highest).map(drop)
    }

    /// Puts a bucket into the chain of which nothing can be had.
    pub(crate) fn close(&mut self, key: &ResolvedKey, limit: NamedLimit) -> Result<(), ChargeError> {
        let key = self.place_of(key);
        self.put(Line { key, limit, cost: 0, closed: true }, Meeting::Highest).map(drop)
    }

    /// Adds another chain's charges to this one's: uses of one bucket add up. Says where each of them is now.
    pub(crate) fn add(&mut self, other: &Self) -> Result<Vec<usize>, ChargeError> {
        let add = |line: &Line| {
            let key = self.place_of(&other.keys[line.key]);
            self.put(Line { key, ..line.clone() }, Meeting::Sum)
        };
        other.lines.iter().map(add).collect()
    }

    /// Decides by the stricter of the policy that it has and this one if the store fails.
    pub(crate) fn guard(&mut self, policy: FailurePolicy) {
        self.on_failure = Some(self.on_failure.map_or(policy, |own| own.stricter(policy)));
    }

    /// The rule in whose name it is asked.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The tenant on whose behalf it is asked.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// What decides if the store fails, or `None` if that is left to the limiter.
    pub const fn failure_policy(&self) -> Option<FailurePolicy> {
        self.on_failure
    }

    /// Whether it only watches.
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether nothing is charged.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether it only looks: a cost of zero spends nothing, and what can never pass is not spent.
    pub fn is_look(&self) -> bool {
        self.lines.iter().all(|line| line.cost == 0) || self.never_passes().is_some()
    }

    /// Whether this key pays for any of it.
    pub(crate) fn pays(&self, key: &ResolvedKey) -> bool {
        self.lines.iter().any(|line| self.keys[line.key] == *key)
    }

    /// Its buckets, in the order of a decision's limits.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The first bucket whose cost is above its capacity, or that is closed.
    #[inline]
    pub fn never_passes(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.is_never())
    }

    /// The charges. If one of them could never pass, the chain is only looked at: each costs nothing.
    ///
    /// # Panics
    /// If the chain is [empty](Self::is_empty).
    #[inline]
    pub fn charges(&self) -> Charges<'_> {
        // One limit is what most chains have; collecting an iterator of one would cost more than the charge.
        if let Some(line) = self.lines.only()
            && !line.is_never()
        {
            return Charges::from(self.charge_of(line, line.cost, line.scaled(self.load)));
        }
        let looks = self.never_passes().is_some();
        self.charges_with(|line| if looks { 0 } else { line.cost }, self.load)
    }

    /// The charges at other costs, each at most what its limit holds, under limits that are not scaled: what is given
    /// back, or charged once the real cost is known.
    ///
    /// # Panics
    /// If the chain is [empty](Self::is_empty).
    pub fn charges_at(&self, cost: impl Fn(&Line) -> u64) -> Charges<'_> {
        self.charges_with(cost, 1.0)
    }

    /// The charges at one price for each bucket, unless a limit never holds as much.
    pub fn priced(&self, tokens: u64) -> Result<Charges<'_>, ChargeError> {
        let charge = |line: &Line| {
            let cost = Cost::new(tokens).map_err(|_| line.above(tokens))?;
            Charge::new(self.keys[line.key].as_key(), line.limit.clone(), cost)
        };
        Charges::new(self.lines.iter().map(charge).collect::<Result<Vec<_>, _>>()?)
    }

    /// Splits the chain by key and cost. A late charge is granted to each part by itself, so that an empty bucket of one
    /// key does not limit another key.
    pub fn by_key_and_cost(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (place, line) in self.lines.iter().enumerate() {
            let key = &self.keys[line.key];
            let same = |part: &Part| part.cost == line.cost && part.chain.keys[0] == *key;
            let at = parts.iter().position(same).unwrap_or_else(|| {
                let chain = Self { keys: Few::one(key.clone()), lines: Few::new(), ..self.clone() };
                parts.push(Part { cost: line.cost, chain, places: Vec::new() });
                parts.len() - 1
            });
            parts[at].chain.lines.push(Line { key: 0, ..line.clone() });
            parts[at].places.push(place);
        }
        parts
    }

    fn charges_with(&self, cost: impl Fn(&Line) -> u64, load: f64) -> Charges<'_> {
        let charge = |line: &Line| self.charge_of(line, cost(line), line.scaled(load));
        Charges::distinct(self.lines.iter().map(charge)).expect("a chain that is asked has 1 to 32 buckets")
    }

    #[inline]
    fn charge_of(&self, line: &Line, cost: u64, limit: NamedLimit) -> Charge<'_> {
        let capacity = u64::from(limit.limit().capacity());
        let cost = Cost::new(cost.min(capacity)).expect("no limit holds more than a cost can be");
        let key = self.keys[line.key].as_key();
        Charge::new(key, limit, cost).expect("the cost is within the capacity")
    }

    #[inline]
    fn place_of(&mut self, key: &ResolvedKey) -> usize {
        self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.keys.len() - 1
        })
    }

    /// Puts a line into the chain and says where it is.
    #[inline]
    fn put(&mut self, line: Line, meeting: Meeting) -> Result<usize, ChargeError> {
        let same = |other: &Line| other.key == line.key && other.limit.name() == line.limit.name();
        let Some(at) = self.lines.iter().position(same) else {
            if self.lines.len() == Charges::MAX {
                return Err(ChargeError::TooMany);
            }
            self.lines.push(line);
            return Ok(self.lines.len() - 1);
        };
        let there = &mut self.lines[at];
        there.closed |= line.closed;
        // Of two limits that share a bucket, the smaller holds.
        if line.limit.limit().capacity() < there.limit.limit().capacity() {
            there.limit = line.limit;
        }
        there.cost = match meeting {
            Meeting::Highest => there.cost.max(line.cost),
            Meeting::Sum => there.cost.saturating_add(line.cost),
        };
        Ok(at)
    }
}

impl Line {
    /// The limit, with its name.
    pub const fn limit(&self) -> &NamedLimit {
        &self.limit
    }

    /// What the bucket is to pay.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Why the bucket can never pay its cost.
    pub fn above_capacity(&self) -> ChargeError {
        self.above(self.cost)
    }

    fn above(&self, tokens: u64) -> ChargeError {
        ChargeError::CostAboveCapacity {
            limit: self.limit.name().clone(),
            cost: u32::try_from(tokens).unwrap_or(u32::MAX),
            capacity: self.limit.limit().capacity(),
        }
    }

    /// True if waiting cannot help: the cost is above the capacity, or the bucket is closed.
    #[inline]
    pub fn is_never(&self) -> bool {
        self.closed || self.cost > u64::from(self.limit.limit().capacity())
    }

    /// The limit with its rate and burst multiplied by `factor`, though never so far that its cost could not be covered
    /// any more: what the whole limit covers passes later, and what it refuses never does. The bucket stays the same one,
    /// so that tokens are neither lost nor found when the factor changes.
    #[inline]
    fn scaled(&self, factor: f64) -> NamedLimit {
        if factor >= 1.0 { self.limit.clone() } else { self.cut(factor) }
    }

    #[cold]
    fn cut(&self, factor: f64) -> NamedLimit {
        let whole = self.limit.limit();
        let capacity = (f64::from(whole.capacity()) * factor) as u64;
        let capacity = capacity.max(self.cost).max(1).min(whole.capacity().into());
        // The same tokens in a longer period. One that takes too long to fill keeps its rate, and is cut in its burst.
        let longer = |period: Duration| {
            let micros = (period.as_micros() as f64 / factor).ceil();
            Limit::per(whole.refill().into(), Duration::from_micros(micros as u64)).burst(capacity).build()
        };
        let as_it_is = || Limit::per(whole.refill().into(), whole.period()).burst(capacity).build();
        let cut = longer(whole.period()).or_else(|_| as_it_is()).unwrap_or(*whole);
        NamedLimit::new(self.limit.name().clone(), cut)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spile_core::Plan;

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
        let costs: Vec<u32> = chain.charges().iter().map(|charge| charge.cost().get()).collect();
        assert_eq!(costs, [5, 1, 1]);
    }

    #[test]
    fn chains_that_are_added_sum_up_in_the_buckets_where_they_meet() {
        let mut all = Chain::new(Some("a"));
        let mut one = Chain::new(Some("a"));
        one.charge(&key("ann"), &plan("free", 10), 4).expect("room for it");
        assert_eq!(all.add(&one), Ok(vec![0]));
        assert_eq!(all.add(&one), Ok(vec![0]));
        assert_eq!(all.lines()[0].cost(), 8);
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
            prop_assert!(u64::from(limit.capacity()) <= capacity);
            let cut = ((capacity as f64 * factor) as u64).max(1);
            prop_assert_eq!(u64::from(limit.capacity()), cut.max(cost.min(capacity)).min(capacity));
            // Its rate is cut as well, unless it would take too long to fill then.
            let whole = *plan.limits()[0].limit();
            let too_long = f64::from(limit.capacity()) / (whole.rate() * factor) > Limit::MAX_FILL.as_secs_f64() * 0.99;
            prop_assert!(limit.rate() < whole.rate() || factor > 0.999_999 || too_long);
            if cost <= capacity {
                prop_assert!(u64::from(limit.capacity()) >= cost);
            }
        }
    }
}
