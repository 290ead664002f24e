//! Charges of callers that name their rule or plans: the decision API, the Redis protocol and the command line.

use smol_str::SmolStr;
use spile_core::{
    Amount, ChargeError, Cost, CostError, KeyError, Limit, LimitName, NameError, NamedLimit, PlanName,
};

use super::{OWN, Policy, TENANT_KEY};
use crate::facts::{AssumedPayer, CallerTenant, Facts};
use crate::key::{ResolvedKey, identity};
use crate::owed::{Chain, Owed, PolicyRefusal};
use crate::rule::Rule;
use crate::tenant::Tenant;

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

impl From<PolicyRefusal> for AskError {
    fn from(why: PolicyRefusal) -> Self {
        match why {
            PolicyRefusal::Banned { rule } => Self::Banned(rule),
            PolicyRefusal::NoKey { rule, .. } | PolicyRefusal::NoTenant { rule } => Self::TenantsOnly(rule),
            PolicyRefusal::NoIdentity { why, .. } => Self::Identity(why),
            PolicyRefusal::NeverPasses(why) => Self::NeverPasses(why),
            PolicyRefusal::NeedsPermit { limit } => Self::NeedsPermit(limit),
            PolicyRefusal::TooManyLimits(why) => Self::Chain(why),
        }
    }
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
    /// Returns the charges of an identity under a rule and the rules in its `also` list, at this cost or, if it is `None`, at the
    /// cost of each rule.
    pub fn owed_by_identity(&self, rule: &str, who: &str, cost: Option<Amount>) -> Result<Owed, AskError> {
        let rule = self.rule(rule).ok_or_else(|| AskError::UnknownRule(truncated(rule)))?;
        self.owed_by_named(rule, None, who, cost)
    }

    /// Returns the charges of an identity under the limit of a route, at this cost or, if it is `None`, at the limit's own.
    pub fn owed_by_route_limit(&self, id: &str, who: &str, cost: Option<Amount>) -> Result<Owed, AskError> {
        let (route, limit) = self.route_limit(id).ok_or_else(|| AskError::UnknownRule(truncated(id)))?;
        self.owed_by_named(limit, Some(route), who, cost)
    }

    /// Returns the charges of a request that is only described: by these facts, by who sends it, and by its cost, if that is not the
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
        let mut facts = Facts { holds_permits: true, ..facts.clone() };
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
        let payer = AssumedPayer { sent: None, key, cost: cost.map(Cost::new).transpose()? };
        Ok(self.owed_by_payer(&facts, &payer))
    }

    /// Returns the charges of an identity under these plans.
    pub fn owed_by_plans<'n>(
        &self,
        who: &str,
        plans: impl IntoIterator<Item = &'n str>,
        cost: impl Into<Amount>,
    ) -> Result<Owed, AskError> {
        self.charged_by_plans(who, plans, cost.into()).map(Owed::from)
    }

    fn charged_by_plans<'n>(
        &self,
        who: &str,
        plans: impl IntoIterator<Item = &'n str>,
        cost: Amount,
    ) -> Result<Chain, AskError> {
        let (key, cost) = (identity(who)?, Cost::new(cost)?.amount());
        let tenant = self.tenant_named(who);
        let mut chain = new_chain(None, tenant.as_ref()).on_failure(Some(self.on_failure));
        let own = self.own_plan(tenant.as_ref());
        for name in plans {
            let plan = self.plan(name).ok_or_else(|| AskError::UnknownPlan(truncated(name)))?;
            let plan = own.filter(|own| own.name() == plan.name()).unwrap_or(plan);
            chain.charge(&key, plan, cost).map_err(AskError::Chain)?;
        }
        if chain.is_empty() { Err(AskError::Chain(ChargeError::Empty)) } else { chain.passable() }
    }

    /// Returns the charges of an identity under a limit that the caller sends. The limit is named after `rule`, in this namespace if
    /// there is one. No rule needs to have that id; if one has, its failure policy and its shadow mode apply.
    pub fn owed_by_limit(
        &self,
        rule: &str,
        namespace: Option<&str>,
        who: &str,
        limit: Limit,
        cost: impl Into<Amount>,
    ) -> Result<Owed, AskError> {
        let key = identity(who)?;
        let name = self.own_limit_name(rule, namespace)?;
        let cost = Cost::new(cost)?.amount();
        let known = self.rule(rule);
        let mut chain = new_chain(Some(rule), self.tenant_named(who).as_ref())
            .on_failure(Some(known.map_or(self.on_failure, |rule| self.failure_policy_of(rule))))
            .shadow(known.is_some_and(|rule| rule.shadow));
        chain.charge_limit(&key, NamedLimit::new(name, limit), cost, false).map_err(AskError::Chain)?;
        chain.passable().map(Owed::from)
    }

    /// All buckets of a key under that plan, or under every plan if it is `None`, as chains of zero cost.
    pub fn buckets_of(&self, who: &str, plan: Option<&str>) -> Result<Vec<Chain>, AskError> {
        let all = || self.plans().into_iter().map(|plan| plan.name().as_str()).collect();
        let names = plan.map_or_else(all, |plan| vec![plan]);
        names.into_iter().map(|name| self.charged_by_plans(who, [name], Amount::ZERO)).collect()
    }

    /// The buckets of a tenant under its plan and its own limits, as a chain of zero cost: those that a rule charges whose key is
    /// the tenant and whose plans are the tenant's.
    pub fn buckets_of_tenant(&self, tenant: &Tenant) -> Result<Chain, AskError> {
        let name = tenant.plan.as_str();
        let plan = tenant.own().or_else(|| self.plan(name));
        let plan = plan.ok_or_else(|| AskError::UnknownPlan(truncated(name)))?;
        let mut chain = Chain::new(None).for_tenant(Some(&tenant.id)).on_failure(Some(self.on_failure));
        chain.charge(&ResolvedKey::tenant(&tenant.id), plan, 0).map_err(AskError::Chain)?;
        Ok(chain)
    }

    /// The tenant whose key this identity is.
    fn tenant_named(&self, who: &str) -> Option<CallerTenant> {
        Some(self.tenant(who.strip_prefix(TENANT_KEY)?)?.caller())
    }

    fn owed_by_named(
        &self,
        rule: &Rule,
        route: Option<&str>,
        who: &str,
        cost: Option<Amount>,
    ) -> Result<Owed, AskError> {
        let own = identity(who)?;
        let cost = cost.map(Cost::new).transpose()?.map(Cost::amount);
        let tenant = self.tenant_named(who);
        let key = |rule: &Rule| {
            // A rule with one literal key has that key at every listener.
            let key = rule.key.shared().unwrap_or(&own).clone();
            Ok(match route {
                Some(route) => ResolvedKey::on_route(key, route),
                None => key,
            })
        };
        let mut chain = new_chain(Some(&rule.id), tenant.as_ref()).shadow(rule.shadow);
        let charged = self.charge_rules(&mut chain, rule, tenant.as_ref(), key, |_| cost);
        match charged.map_err(AskError::from).and_then(|()| chain.passable()) {
            // A rule in shadow mode never blocks, even if it cannot be applied.
            Err(_) if rule.shadow => Ok(Owed::default()),
            charged => charged.map(Owed::from),
        }
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

/// A chain for a caller, without charges.
fn new_chain(rule: Option<&str>, tenant: Option<&CallerTenant>) -> Chain {
    Chain::new(rule).for_tenant(tenant.map(|tenant| tenant.id.as_str()))
}

/// The first 64 characters of an unknown name, for the error.
fn truncated(name: &str) -> SmolStr {
    name.chars().take(64).collect()
}
