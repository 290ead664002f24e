//! One question to the limiter, parsed: who pays, under which limits, and by whose rule.

use std::time::Duration;

use smol_str::SmolStr;
use spile_core::{Charges, Cost, FailurePolicy, Key, Limit, LimitError, LimitName, NamedLimit, PlanName};
use spile_limiter::Ask;
use spile_tower::key::ResolvedKey;

use crate::bill::Bill;
use crate::fault::Fault;
use crate::identity;
use crate::policies::Policies;
use crate::rule::{Rule, RulePlans};
use crate::tenant::Tenant;
use crate::typed::{Text, TypedQuestion, Whole};

/// The namespace of limits that a caller brought along under the name of a plan's limit. No plan may be called so.
pub(crate) const OWN: &str = "own";
/// The rule, and the name of the limit, of whatever is asked by `CL.THROTTLE`. No plan may be called so, and thus the
/// limit's buckets are the same whatever plans there are.
pub(crate) const THROTTLE: &str = "cl.throttle";
/// The limit of whatever Envoy's descriptors bring along themselves, and the rule where none is for them. No plan may be
/// called so either.
pub(crate) const OVERRIDE: &str = "envoy.override";
/// What the key of a tenant begins with, wherever it comes from.
pub(crate) const TENANT_KEY: &str = "tenant:";

/// A question that can be asked: every name is known, every number within its bound.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    charges: Charges<'a>,
    rule: Option<&'a str>,
    tenant: Option<&'a str>,
    on_failure: FailurePolicy,
    shadow: bool,
    within: Option<Duration>,
}

impl<'a> Question<'a> {
    /// Reads a question against the policies of this moment.
    pub(crate) fn parse(typed: &'a TypedQuestion<'_>, policies: &'a Policies) -> Result<Self, Fault> {
        let TypedQuestion { rule_id, plans, capacity, refill_per_second, .. } = typed;
        let rule_id = rule_id.as_deref();
        match (rule_id, plans, capacity, refill_per_second) {
            (Some(id), None, None, None) => Self::by_rule(typed, id, policies),
            (None, Some(plans), None, None) => Self::by_plans(typed, plans, policies),
            (Some(id), None, Some(capacity), Some(rate)) => {
                Self::by_own_limit(typed, id, *capacity, *rate, policies)
            }
            _ => Err(unclear(typed)),
        }
    }

    /// What a request is to be asked by a rule. `keys` are who pays for the rule and for each that is charged with
    /// it, in that order; one of those that finds nobody to pay is left out.
    pub(crate) fn by_request(
        rule: &'a Rule,
        tenant: Option<&'a Tenant>,
        keys: &'a [Option<ResolvedKey>],
        policies: &'a Policies,
    ) -> Result<Self, Fault> {
        let mut bill = Bill::default();
        let also = rule.also.iter().filter_map(|id| policies.rule(id));
        for (rule, key) in std::iter::once(rule).chain(also).zip(keys) {
            let Some(key) = key else { continue };
            let key = identity::key(key.as_str()).map_err(|why| Fault::new("key", why))?;
            add_rule(&mut bill, key, rule, tenant, rule.cost, policies)?;
        }
        Ok(Self { tenant: tenant.map(|tenant| tenant.id.as_str()), ..Self::new(bill, Some(rule), policies)? })
    }

    /// What somebody asks with a limit of their own. A rule of that id need not exist; where it does, it says what
    /// happens when the store fails and whether anybody is blocked.
    pub(crate) fn own(
        id: &'a str,
        key: Key<'a>,
        limit: Limit,
        cost: Cost,
        policies: &'a Policies,
    ) -> Result<Self, Fault> {
        let limit = NamedLimit::new(own_limit_name(id, policies)?, limit);
        let mut bill = Bill::default();
        bill.add(key, limit, cost)?;
        Ok(Self { rule: Some(id), ..Self::new(bill, policies.rule(id), policies)? })
    }

    /// What charges that were put together elsewhere ask, in the name of this rule.
    pub(crate) const fn chain(
        charges: Charges<'a>,
        rule: &'a str,
        tenant: Option<&'a str>,
        on_failure: FailurePolicy,
    ) -> Self {
        Self { charges, rule: Some(rule), tenant, on_failure, shadow: false, within: None }
    }

    /// The same, which only watches.
    pub(crate) const fn watching(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// The same, which the store may not take longer over.
    pub(crate) const fn within(mut self, deadline: Duration) -> Self {
        self.within = Some(deadline);
        self
    }

    /// Whether it only looks: by the contract, a cost of zero does.
    pub(crate) fn is_peek(&self) -> bool {
        self.charges.iter().all(|charge| charge.cost() == Cost::ZERO)
    }

    pub(crate) fn into_charges(self) -> Charges<'a> {
        self.charges
    }

    pub(crate) fn into_ask(self) -> Ask<'a> {
        let mut ask = Ask::from(self.charges).on_failure(self.on_failure).shadow(self.shadow);
        if let Some(deadline) = self.within {
            ask = ask.within(deadline);
        }
        if let Some(rule) = self.rule {
            ask = ask.rule(rule);
        }
        if let Some(tenant) = self.tenant {
            ask = ask.tenant(tenant);
        }
        ask
    }

    fn new(bill: Bill<'a>, rule: Option<&'a Rule>, policies: &Policies) -> Result<Self, Fault> {
        let on_failure = rule.and_then(|rule| rule.on_failure).unwrap_or(policies.on_failure);
        let shadow = rule.is_some_and(|rule| rule.shadow);
        let rule = rule.map(|rule| rule.id.as_str());
        Ok(Self { charges: bill.into_charges()?, rule, tenant: None, on_failure, shadow, within: None })
    }

    fn by_rule(typed: &'a TypedQuestion<'_>, id: &'a str, policies: &'a Policies) -> Result<Self, Fault> {
        let rule = policies.rule(id).ok_or_else(|| unknown_rule(id))?;
        let key = who(typed)?;
        let tenant = key.as_str().strip_prefix(TENANT_KEY).and_then(|id| policies.tenant(id));
        let mut bill = Bill::default();
        add_rule(&mut bill, key, rule, tenant, cost(typed, rule.cost)?, policies)?;
        for other in rule.also.iter().filter_map(|id| policies.rule(id)) {
            let shared = other.key.shared().map(|key| identity::key(key.as_str())).transpose();
            let key = shared.map_err(|why| Fault::new("ruleId", why))?.unwrap_or(key);
            add_rule(&mut bill, key, other, tenant, cost(typed, other.cost)?, policies)?;
        }
        Ok(Self { tenant: tenant.map(|tenant| tenant.id.as_str()), ..Self::new(bill, Some(rule), policies)? })
    }

    fn by_plans(
        typed: &'a TypedQuestion<'_>,
        plans: &[Text<'_>],
        policies: &Policies,
    ) -> Result<Self, Fault> {
        let (key, cost) = (who(typed)?, cost(typed, Cost::ONE)?);
        let mut bill = Bill::default();
        plans.iter().try_for_each(|plan| bill.add_plan(key, plan, cost, policies))?;
        Self::new(bill, None, policies)
    }

    fn by_own_limit(
        typed: &'a TypedQuestion<'_>,
        id: &'a str,
        capacity: Whole,
        rate: f64,
        policies: &'a Policies,
    ) -> Result<Self, Fault> {
        let limit = Limit::per_second_f64(rate, capacity.0).map_err(own_limit_fault)?;
        Self::own(id, who(typed)?, limit, cost(typed, Cost::ONE)?, policies)
    }
}

fn add_rule<'k>(
    bill: &mut Bill<'k>,
    key: Key<'k>,
    rule: &Rule,
    tenant: Option<&Tenant>,
    cost: Cost,
    policies: &Policies,
) -> Result<(), Fault> {
    match (&rule.plans, tenant) {
        (RulePlans::Listed(plans), _) => {
            plans.iter().try_for_each(|plan| bill.add_plan(key, plan.as_str(), cost, policies))
        }
        (RulePlans::Tenant { .. }, Some(tenant)) => bill.add_plan(key, tenant.plan.as_str(), cost, policies),
        (RulePlans::Tenant { anonymous: Some(plan) }, None) => {
            bill.add_plan(key, plan.as_str(), cost, policies)
        }
        (RulePlans::Tenant { anonymous: None }, None) => {
            let why = format!("rule `{}` is for tenants alone; write `tenant:` and the id of one", rule.id);
            Err(Fault::new("identity", why))
        }
    }
}

fn who<'a>(typed: &'a TypedQuestion<'_>) -> Result<Key<'a>, Fault> {
    let identity = typed.identity.as_deref().ok_or_else(|| {
        Fault::new("identity", format_args!("is missing; it takes 1 to {} bytes of text", Key::MAX_BYTES))
    })?;
    identity::key(identity).map_err(|why| Fault::new("identity", why))
}

fn cost(typed: &TypedQuestion<'_>, otherwise: Cost) -> Result<Cost, Fault> {
    typed.cost.map_or(Ok(otherwise), |Whole(tokens)| Cost::new(tokens)).map_err(|why| Fault::new("cost", why))
}

/// A caller's own limit is called like its rule, and never shares a bucket with a plan's limit of that name.
fn own_limit_name(id: &str, policies: &Policies) -> Result<LimitName, Fault> {
    let own = PlanName::new(id).map_err(|why| Fault::new("ruleId", why))?;
    if policies.plan(id).is_none() {
        return Ok(LimitName::from(&own));
    }
    let namespace = PlanName::new(OWN).map_err(|why| Fault::new("ruleId", why))?;
    LimitName::within(&namespace, id).map_err(|why| Fault::new("ruleId", why))
}

fn unclear(typed: &TypedQuestion<'_>) -> Fault {
    match (&typed.rule_id, &typed.plans, typed.capacity, typed.refill_per_second) {
        (None, None, None, None) => Fault::new(
            "ruleId",
            "is missing; give `ruleId`, `plans`, or `ruleId` with `capacity` and `refillPerSecond`",
        ),
        (_, Some(_), ..) => {
            Fault::new("plans", "stands alone; leave out `ruleId`, `capacity` and `refillPerSecond`")
        }
        (_, _, Some(_), None) => {
            Fault::new("refillPerSecond", "is missing; `capacity` needs it, from 0.000001 to 1000000000")
        }
        (_, _, None, _) => {
            Fault::new("capacity", "is missing; `refillPerSecond` needs it, from 1 to 1000000000")
        }
        (None, ..) => Fault::new(
            "ruleId",
            "is missing; a limit of your own needs 1 to 64 letters, digits, `.`, `_` or `-`",
        ),
        (Some(_), None, Some(_), Some(_)) => Fault::new("body", "is not a question"),
    }
}

fn unknown_rule(id: &str) -> Fault {
    let shown: SmolStr = id.chars().take(64).collect();
    Fault::new("ruleId", format_args!("no rule has the id {shown:?}"))
}

fn own_limit_fault(why: LimitError) -> Fault {
    let field = if matches!(why, LimitError::Capacity(_)) { "capacity" } else { "refillPerSecond" };
    Fault::new(field, why)
}
