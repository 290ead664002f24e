//! All that a request is to spend, as one chain: each bucket once, and known by which descriptor.

use spile_core::{Charge, ChargeError, Charges, Cost, Key, Limit, LimitName, NamedLimit};
use tonic::Status;

use super::target::{Hits, OwnLimit, Target};
use crate::identity;
use crate::policies::Policies;
use crate::question::OVERRIDE;
use crate::rule::{Rule, RulePlans};

/// One bucket, and what is to be taken from it or given back.
#[derive(Debug)]
struct Line<'t> {
    key: Key<'t>,
    limit: NamedLimit,
    cost: u64,
    /// Whether not even one request per unit is wanted.
    closed: bool,
}

/// The buckets of several targets. A bucket that two of them name is there once, with what both cost.
#[derive(Debug, Default)]
pub(super) struct Chain<'t> {
    lines: Vec<Line<'t>>,
    /// Which lines are whose, target by target.
    of: Vec<Vec<usize>>,
    /// Whether it is given back, which nothing is too much for.
    back: bool,
}

impl<'t> Chain<'t> {
    /// The chain of these targets, and of whatever their rules are charged with.
    pub(super) fn new(
        targets: impl IntoIterator<Item = &'t Target<'t>>,
        policies: &'t Policies,
    ) -> Result<Self, Status> {
        let mut chain = Self::default();
        for target in targets {
            chain.of.push(Vec::new());
            chain.back |= matches!(target.hits, Hits::GiveBack(_));
            chain.add(target, policies)?;
        }
        Ok(chain)
    }

    /// The lines of one target.
    pub(super) fn of(&self, target: usize) -> &[usize] {
        &self.of[target]
    }

    /// Whether this line could never be paid, however long anybody waits.
    pub(super) fn is_never(&self, line: usize) -> bool {
        let Line { limit, cost, closed, .. } = &self.lines[line];
        !self.back && (*closed || *cost > u64::from(limit.limit().capacity()))
    }

    /// Whether there is such a line.
    pub(super) fn has_never(&self) -> bool {
        (0..self.lines.len()).any(|line| self.is_never(line))
    }

    /// What is to be spent, if anything is. A chain that could never be paid is only looked at.
    pub(super) fn asked(&self) -> Result<Option<Charges<'t>>, Status> {
        if self.has_never() { self.charged(|_| 0) } else { self.charged(|line| line.cost) }
    }

    /// What is to be spent under a rule that only watches: nothing where it could never be paid.
    pub(super) fn watched(&self) -> Result<Option<Charges<'t>>, Status> {
        if self.has_never() { Ok(None) } else { self.asked() }
    }

    /// What is to be given back, of which nothing above a capacity has any effect.
    pub(super) fn given_back(&self) -> Result<Option<Charges<'t>>, Status> {
        self.charged(|line| line.cost.min(line.limit.limit().capacity().into()))
    }

    fn charged(&self, cost: impl Fn(&Line<'t>) -> u64) -> Result<Option<Charges<'t>>, Status> {
        if self.lines.is_empty() {
            return Ok(None);
        }
        let charge = |line: &Line<'t>| {
            let cost = Cost::new(cost(line)).unwrap_or(Cost::ZERO);
            Charge::new(line.key, line.limit.clone(), cost)
        };
        let charges: Result<Vec<_>, ChargeError> = self.lines.iter().map(charge).collect();
        let charges = charges.and_then(Charges::new);
        charges.map(Some).map_err(|why| Status::invalid_argument(format!("descriptors: {why}")))
    }

    fn add(&mut self, target: &'t Target<'t>, policies: &'t Policies) -> Result<(), Status> {
        let key = identity::key(&target.key).map_err(Status::internal)?;
        let (Hits::Spend(hits) | Hits::GiveBack(hits)) = target.hits;
        if let Some(own) = target.limit {
            let name = LimitName::new(OVERRIDE).map_err(|why| Status::internal(why.to_string()))?;
            let (limit, closed) = match own {
                OwnLimit::Tokens(limit) => (limit, false),
                OwnLimit::Nothing => (least(), true),
            };
            self.put(Line { key, limit: NamedLimit::new(name, limit), cost: hits, closed });
            return Ok(());
        }
        let Some(rule) = target.rule else { return Ok(()) };
        self.add_rule(key, rule, hits, target, policies);
        for other in rule.also.iter().filter_map(|id| policies.rule(id)) {
            let shared = other.key.shared().map(|key| identity::key(key.as_str())).transpose();
            let key = shared.map_err(Status::internal)?.unwrap_or(key);
            self.add_rule(key, other, hits, target, policies);
        }
        Ok(())
    }

    fn add_rule(&mut self, key: Key<'t>, rule: &Rule, hits: u64, target: &Target<'_>, policies: &Policies) {
        let cost = hits.saturating_mul(rule.cost.get().into());
        let of_tenant = target.tenant.map(|tenant| &tenant.plan);
        let plans = match (&rule.plans, of_tenant) {
            (RulePlans::Tenant { .. }, Some(plan)) => std::slice::from_ref(plan),
            (plans, _) => plans.known(),
        };
        for plan in plans.iter().filter_map(|name| policies.plan(name.as_str())) {
            for limit in plan.limits() {
                self.put(Line { key, limit: limit.clone(), cost, closed: false });
            }
        }
    }

    fn put(&mut self, line: Line<'t>) {
        let same = |other: &Line<'_>| other.key == line.key && other.limit.name() == line.limit.name();
        let at = self.lines.iter().position(same).unwrap_or(self.lines.len());
        match self.lines.get_mut(at) {
            Some(there) => {
                there.cost = there.cost.saturating_add(line.cost);
                there.closed |= line.closed;
            }
            None => self.lines.push(line),
        }
        if let Some(mine) = self.of.last_mut()
            && !mine.contains(&at)
        {
            mine.push(at);
        }
    }
}

/// What stands for a limit of nothing, which is never spent from.
fn least() -> Limit {
    Limit::per_second(1).build().unwrap_or_else(|_| unreachable!("one token per second is a limit"))
}
