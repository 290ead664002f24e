//! What a caller owes that names its rule or plans itself: the decision API, the Redis protocol and the command line.

use std::borrow::Cow;

use smol_str::SmolStr;
use spile_core::{
    Amount, ChargeError, Cost, CostError, KeyError, Limit, LimitName, NameError, NamedLimit, PlanName,
};

use super::{OWN, Policy, TENANT_KEY};
use crate::facts::{AssumedPayer, CallerTenant, Facts};
use crate::key::{ResolvedKey, identity};
use crate::owed::{Chain, Owed};
use crate::rule::{Rule, RulePlans};

/// Why a request for a decision is invalid. Nothing has been charged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The identity is empty, too long or has control characters.
    #[error(transparent)]
    Identity(#[from] KeyError),
    /// No rule has that id.
    #[error("no rule has the id {0:?}")]
    UnknownRule(SmolStr),
    /// No plan has that name.
    #[error("no plan is called {0:?}")]
    UnknownPlan(SmolStr),
    /// The text is not a valid rule id.
    #[error(transparent)]
    RuleId(#[from] NameError),
    /// The cost is above the largest capacity of any limit.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The cost is above the capacity of a limit in the chain.
    #[error(transparent)]
    NeverPasses(ChargeError),
    /// The chain is empty or too long.
    #[error(transparent)]
    Chain(ChargeError),
    /// The rule is only for tenants.
    #[error("rule `{0}` is only for tenants; write `tenant:` and the id of one")]
    TenantsOnly(SmolStr),
    /// The rule denies every request.
    #[error("rule `{0}` denies every request")]
    Banned(SmolStr),
    /// A limit is a concurrency, and the question could not release a permit.
    #[error(
        "limit {0} is a concurrency: it takes a permit, which this question could not release; acquire one"
    )]
    NeedsPermit(LimitName),
    /// No limit is a concurrency, so that there is no permit to take.
    #[error("none of its limits is a concurrency, so that there is no permit to take")]
    NoConcurrency,
}

impl AskError {
    /// The invalid field of the request, as the decision API names it.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Identity(_) | Self::TenantsOnly(_) => "identity",
            Self::UnknownRule(_) | Self::RuleId(_) | Self::Banned(_) => "ruleId",
            Self::UnknownPlan(_) | Self::Chain(_) | Self::NeedsPermit(_) | Self::NoConcurrency => "plans",
            Self::Cost(_) | Self::NeverPasses(_) => "cost",
        }
    }
}

impl Policy {
    /// What an identity owes under a rule and the rules in its `also` list, at this cost or, if it is `None`, at the
    /// cost of each rule. The result is `None` if the rule does not limit it.
    pub fn owed_by_identity(
        &self,
        rule: &str,
        who: &str,
        cost: Option<Amount>,
    ) -> Result<Option<Chain>, AskError> {
        let rule = self.rule(rule).ok_or_else(|| AskError::UnknownRule(truncated(rule)))?;
        let key = identity(who)?;
        let cost = cost.map(Cost::new).transpose()?;
        let tenant = self.tenant_named(who);
        let chain = self.identity_chain(rule, None, &key, tenant.as_ref(), cost);
        // A rule in shadow mode never blocks, even if it cannot be applied.
        if rule.shadow { Ok(chain.unwrap_or(None)) } else { chain }
    }

    /// What an identity owes under the limit of a route, at this cost or, if it is `None`, at the limit's own.
    pub fn owed_by_route_limit(
        &self,
        id: &str,
        who: &str,
        cost: Option<Amount>,
    ) -> Result<Option<Chain>, AskError> {
        let (route, limit) = self.route_limit(id).ok_or_else(|| AskError::UnknownRule(truncated(id)))?;
        let key = identity(who)?;
        let cost = cost.map(Cost::new).transpose()?;
        let tenant = self.tenant_named(who);
        let chain = self.identity_chain(limit, Some(route), &key, tenant.as_ref(), cost);
        if limit.shadow { Ok(chain.unwrap_or(None)) } else { chain }
    }

    /// What a request owes that is only described: by these facts, by who sends it, and by its cost, if that is not the
    /// cost of each rule. The tenant, the user or the address in `who` is a fact as if the request had it. An address is
    /// that of an anonymous caller. What else a tenant or a user sends is not known: `who` pays under a rule that looks
    /// for a key of another kind.
    pub fn owed_by_description(
        &self,
        facts: &Facts<'_>,
        who: &str,
        cost: Option<Amount>,
    ) -> Result<Owed, AskError> {
        let key = identity(who)?;
        let mut facts = facts.clone();
        if let Some(id) = who.strip_prefix(TENANT_KEY) {
            facts.tenant = Some(self.tenant_of_claim(id, None));
        } else if let Some(name) = who.strip_prefix("principal:") {
            facts.principal = Some(name);
        } else if let Some(address) = who.strip_prefix("ip:") {
            // The key of an IPv6 address is its network.
            let address = address.split_once('/').map_or(address, |(address, _)| address);
            facts.address = address.parse().ok();
        }
        let key = Some(key).filter(|_| facts.address.is_none());
        let payer = AssumedPayer { key, cost: cost.map(Cost::new).transpose()? };
        Ok(self.owed(&Facts { assumed: Some(&payer), holds: true, ..facts }))
    }

    /// What an identity owes under these plans.
    pub fn owed_by_plans<'n>(
        &self,
        who: &str,
        plans: impl IntoIterator<Item = &'n str>,
        cost: impl Into<Amount>,
    ) -> Result<Chain, AskError> {
        let (key, cost) = (identity(who)?, Cost::new(cost)?.amount());
        let tenant = self.tenant_named(who);
        let mut chain = Chain::new(None).on_failure(Some(self.on_failure));
        chain = chain.for_tenant(tenant.as_ref().map(|tenant| tenant.id.as_str()));
        let own = self.own_plan(tenant.as_ref());
        for name in plans {
            let plan = self.plan(name).ok_or_else(|| AskError::UnknownPlan(truncated(name)))?;
            let plan = own.filter(|own| own.name() == plan.name()).unwrap_or(plan);
            chain.charge(&key, plan, cost).map_err(AskError::Chain)?;
        }
        check_passable(chain)
    }

    /// What an identity owes under a limit that the caller sends. The limit is named after `rule`, in this namespace if
    /// there is one. No rule needs to have that id; if one has, its failure policy and its shadow mode apply.
    pub fn owed_by_limit(
        &self,
        rule: &str,
        namespace: Option<&str>,
        who: &str,
        limit: Limit,
        cost: impl Into<Amount>,
    ) -> Result<Chain, AskError> {
        let key = identity(who)?;
        let name = self.own_limit_name(rule, namespace)?;
        let cost = Cost::new(cost)?.amount();
        let known = self.rule(rule);
        let tenant = self.tenant_named(who);
        let mut chain = Chain::new(Some(rule))
            .for_tenant(tenant.as_ref().map(|tenant| tenant.id.as_str()))
            .on_failure(Some(known.map_or(self.on_failure, |rule| self.failure_policy_of(rule))))
            .shadow(known.is_some_and(|rule| rule.shadow));
        chain.charge_limit(&key, NamedLimit::new(name, limit), cost).map_err(AskError::Chain)?;
        check_passable(chain)
    }

    /// All buckets of a key under that plan, or under every plan if it is `None`, as chains of zero cost.
    pub fn buckets_of(&self, who: &str, plan: Option<&str>) -> Result<Vec<Chain>, AskError> {
        let all = || self.plans().into_iter().map(|plan| plan.name().as_str()).collect();
        let names = plan.map_or_else(all, |plan| vec![plan]);
        names.into_iter().map(|name| self.owed_by_plans(who, [name], 0)).collect()
    }

    /// The buckets of a tenant under its plan and its own limits, as a chain of zero cost: those that a rule charges whose key is
    /// the tenant and whose plans are the tenant's. `None` if there is no such tenant.
    pub fn buckets_of_tenant(&self, id: &str) -> Option<Chain> {
        let tenant = self.tenant(id)?;
        let plan = tenant.own().or_else(|| self.plan(tenant.plan.as_str()))?;
        let mut chain = Chain::new(None).for_tenant(Some(id)).on_failure(Some(self.on_failure));
        chain.charge(&ResolvedKey::tenant(id), plan, 0).ok()?;
        Some(chain)
    }

    /// The tenant whose key this identity is.
    fn tenant_named(&self, who: &str) -> Option<CallerTenant> {
        Some(self.tenant(who.strip_prefix(TENANT_KEY)?)?.caller())
    }

    fn identity_chain(
        &self,
        rule: &Rule,
        route: Option<&str>,
        key: &ResolvedKey,
        tenant: Option<&CallerTenant>,
        cost: Option<Cost>,
    ) -> Result<Option<Chain>, AskError> {
        let mut chain = Chain::new(Some(&rule.id))
            .for_tenant(tenant.map(|tenant| tenant.id.as_str()))
            .shadow(rule.shadow);
        for rule in self.with_also(rule) {
            match &rule.plans {
                RulePlans::Unlimited => continue,
                RulePlans::Banned => return Err(AskError::Banned(rule.id.clone())),
                RulePlans::Tenant { anonymous: None } if tenant.is_none() => {
                    return Err(AskError::TenantsOnly(rule.id.clone()));
                }
                _ => {}
            }
            // A rule with one literal key has that key at every listener.
            let key = rule.key.shared().unwrap_or(key);
            let key = &*route
                .map_or(Cow::Borrowed(key), |route| Cow::Owned(ResolvedKey::on_route(key.clone(), route)));
            chain.tighten_failure_policy(self.failure_policy_of(rule));
            let tokens = cost.unwrap_or(rule.cost).amount();
            for plan in self.plans_of(rule, tenant) {
                let charged = chain.charge_plan(key, plan, tokens, rule.cost.amount(), rule.fixed_cost);
                charged.map_err(AskError::Chain)?;
            }
        }
        if chain.is_empty() { Ok(None) } else { check_passable(chain).map(Some) }
    }

    /// A limit that a caller sends is named after its rule, and never shares a bucket with a plan of that name.
    fn own_limit_name(&self, id: &str, namespace: Option<&str>) -> Result<LimitName, NameError> {
        let own = PlanName::new(id)?;
        match namespace {
            Some(namespace) => LimitName::within(&own, namespace),
            None if self.plan(id).is_none() => Ok(LimitName::from(&own)),
            None => LimitName::within(&PlanName::new(OWN)?, id),
        }
    }
}

fn check_passable(chain: Chain) -> Result<Chain, AskError> {
    match chain.never_passes() {
        _ if chain.is_empty() => Err(AskError::Chain(ChargeError::Empty)),
        Some(bucket) => Err(AskError::NeverPasses(bucket.above_capacity())),
        None => Ok(chain),
    }
}

/// The first 64 characters of an unknown name, for the error.
fn truncated(name: &str) -> SmolStr {
    name.chars().take(64).collect()
}
