//! What is owed by a caller that names its rule or plans itself: the decision API, the Redis protocol, the command line.

use smol_str::SmolStr;
use spile_core::{ChargeError, Cost, CostError, KeyError, Limit, LimitName, NameError, NamedLimit, PlanName};

use crate::chain::Chain;
use crate::facts::CallerTenant;
use crate::identity::identity;
use crate::key::ResolvedKey;
use crate::policy::{OWN, Policy, TENANT_KEY};
use crate::rule::{Rule, RulePlans};

/// What is wrong with a question. Nothing has been charged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The identity is empty, too long or has control characters.
    #[error(transparent)]
    Identity(#[from] KeyError),
    /// No rule has that id.
    #[error("no rule has the id {0:?}")]
    UnknownRule(SmolStr),
    /// No plan has that name.
    #[error("no plan is called {0:?}")]
    UnknownPlan(SmolStr),
    /// The id cannot be one.
    #[error(transparent)]
    RuleId(#[from] NameError),
    /// The cost is above what any limit holds.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The cost is above what a limit of the chain holds.
    #[error(transparent)]
    NeverPasses(ChargeError),
    /// The chain is empty or too long.
    #[error(transparent)]
    Chain(ChargeError),
    /// The rule is for tenants alone.
    #[error("rule `{0}` is for tenants alone; write `tenant:` and the id of one")]
    TenantsOnly(SmolStr),
    /// The rule lets nothing pass.
    #[error("rule `{0}` lets nothing pass")]
    Banned(SmolStr),
}

impl Wrong {
    /// The part of a question that it is about, as the decision API calls it.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Identity(_) | Self::TenantsOnly(_) => "identity",
            Self::UnknownRule(_) | Self::RuleId(_) | Self::Banned(_) => "ruleId",
            Self::UnknownPlan(_) | Self::Chain(_) => "plans",
            Self::Cost(_) | Self::NeverPasses(_) => "cost",
        }
    }
}

impl Policy {
    /// What an identity owes under a rule and those that are charged with it, at this cost or else at the rules' own.
    /// `None` if the rule does not limit it.
    pub fn owed_by_identity(&self, rule: &str, who: &str, cost: Option<u64>) -> Result<Option<Chain>, Wrong> {
        let rule = self.rule(rule).ok_or_else(|| Wrong::UnknownRule(shown(rule)))?;
        let key = identity(who)?;
        let cost = cost.map(Cost::new).transpose()?;
        let tenant = self.tenant_called(who);
        let chain = self.identity_chain(rule, &key, tenant.as_ref(), cost);
        // A rule that only watches never blocks, whatever is wrong with it.
        if rule.shadow { Ok(chain.unwrap_or(None)) } else { chain }
    }

    /// What an identity owes under these plans.
    pub fn owed_by_plans<'n>(
        &self,
        who: &str,
        plans: impl IntoIterator<Item = &'n str>,
        cost: u64,
    ) -> Result<Chain, Wrong> {
        let key = identity(who)?;
        Cost::new(cost)?;
        let tenant = self.tenant_called(who);
        let mut chain = Chain::new(None).on_failure(Some(self.on_failure));
        chain = chain.for_tenant(tenant.as_ref().map(|tenant| tenant.id.as_str()));
        let own = self.own_plan(tenant.as_ref());
        for name in plans {
            let plan = self.plan(name).ok_or_else(|| Wrong::UnknownPlan(shown(name)))?;
            let plan = own.filter(|own| own.name() == plan.name()).unwrap_or(plan);
            chain.charge(&key, plan, cost).map_err(Wrong::Chain)?;
        }
        passable(chain)
    }

    /// What an identity owes under a limit that it brings along, named after `rule`, in a namespace of its own if there
    /// is one. No rule need have that id; if one has, it says what happens when the store fails, and whether requests
    /// are blocked.
    pub fn owed_by_limit(
        &self,
        rule: &str,
        namespace: Option<&str>,
        who: &str,
        limit: Limit,
        cost: u64,
    ) -> Result<Chain, Wrong> {
        let key = identity(who)?;
        let name = self.own_limit_name(rule, namespace)?;
        Cost::new(cost)?;
        let known = self.rule(rule);
        let tenant = self.tenant_called(who);
        let mut chain = Chain::new(Some(rule))
            .for_tenant(tenant.as_ref().map(|tenant| tenant.id.as_str()))
            .on_failure(Some(known.map_or(self.on_failure, |rule| self.failure_policy_of(rule))))
            .shadow(known.is_some_and(|rule| rule.shadow));
        chain.charge_limit(&key, NamedLimit::new(name, limit), cost).map_err(Wrong::Chain)?;
        passable(chain)
    }

    /// Every bucket of a key under that plan, or under each plan: charges that cost nothing and only name buckets.
    pub fn buckets_of(&self, who: &str, plan: Option<&str>) -> Result<Vec<Chain>, Wrong> {
        let all = || self.plans().into_iter().map(|plan| plan.name().as_str()).collect();
        let names = plan.map_or_else(all, |plan| vec![plan]);
        names.into_iter().map(|name| self.owed_by_plans(who, [name], 0)).collect()
    }

    /// The tenant that an identity is the key of.
    fn tenant_called(&self, who: &str) -> Option<CallerTenant> {
        Some(self.tenant(who.strip_prefix(TENANT_KEY)?)?.caller())
    }

    fn identity_chain(
        &self,
        rule: &Rule,
        key: &ResolvedKey,
        tenant: Option<&CallerTenant>,
        cost: Option<Cost>,
    ) -> Result<Option<Chain>, Wrong> {
        let mut chain = Chain::new(Some(&rule.id))
            .for_tenant(tenant.map(|tenant| tenant.id.as_str()))
            .shadow(rule.shadow);
        for rule in self.with_also(rule) {
            match &rule.plans {
                RulePlans::Unlimited => continue,
                RulePlans::Banned => return Err(Wrong::Banned(rule.id.clone())),
                RulePlans::Tenant { anonymous: None } if tenant.is_none() => {
                    return Err(Wrong::TenantsOnly(rule.id.clone()));
                }
                _ => {}
            }
            // A rule that one key pays for has that key at every door.
            let key = rule.key.shared().unwrap_or(key);
            chain.guard(self.failure_policy_of(rule));
            let tokens = cost.unwrap_or(rule.cost).get().into();
            for plan in self.plans_of(rule, tenant) {
                chain.charge(key, plan, tokens).map_err(Wrong::Chain)?;
            }
        }
        if chain.is_empty() { Ok(None) } else { passable(chain).map(Some) }
    }

    /// A caller's own limit is called like its rule, and never shares a bucket with a plan's limit of that name.
    fn own_limit_name(&self, id: &str, namespace: Option<&str>) -> Result<LimitName, NameError> {
        let own = PlanName::new(id)?;
        match namespace {
            Some(namespace) => LimitName::within(&own, namespace),
            None if self.plan(id).is_none() => Ok(LimitName::from(&own)),
            None => LimitName::within(&PlanName::new(OWN)?, id),
        }
    }
}

fn passable(chain: Chain) -> Result<Chain, Wrong> {
    match chain.never_passes() {
        _ if chain.is_empty() => Err(Wrong::Chain(ChargeError::Empty)),
        Some(line) => Err(Wrong::NeverPasses(line.above_capacity())),
        None => Ok(chain),
    }
}

/// The first 64 characters of an unknown name, for the error.
fn shown(name: &str) -> SmolStr {
    name.chars().take(64).collect()
}
