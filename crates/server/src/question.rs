//! One question to the limiter, parsed: who pays, under which limits, and by whose rule.

use smol_str::SmolStr;
use spile_core::{
    Charge, ChargeError, Charges, Cost, FailurePolicy, Key, Limit, LimitError, LimitName, NamedLimit,
    PlanName,
};
use spile_limiter::Ask;

use crate::fault::Fault;
use crate::identity;
use crate::policies::Policies;
use crate::typed::{Text, TypedQuestion, Whole};

/// The namespace of limits that a caller brought along under the name of a plan's limit. No plan may be called so.
pub(crate) const OWN: &str = "own";

/// A question that can be asked: every name is known, every number within its bound.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    charges: Charges<'a>,
    rule: Option<&'a str>,
    on_failure: Option<FailurePolicy>,
    shadow: bool,
}

impl<'a> Question<'a> {
    /// Reads a question against the policies of this moment.
    pub(crate) fn parse(typed: &'a TypedQuestion<'_>, policies: &Policies) -> Result<Self, Fault> {
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

    /// Whether it only looks: by the contract, a cost of zero does.
    pub(crate) fn is_peek(&self) -> bool {
        self.charges.iter().all(|charge| charge.cost() == Cost::ZERO)
    }

    pub(crate) fn into_charges(self) -> Charges<'a> {
        self.charges
    }

    pub(crate) fn into_ask(self, on_failure: FailurePolicy) -> Ask<'a> {
        let ask =
            Ask::from(self.charges).on_failure(self.on_failure.unwrap_or(on_failure)).shadow(self.shadow);
        match self.rule {
            Some(rule) => ask.rule(rule),
            None => ask,
        }
    }

    fn by_rule(typed: &'a TypedQuestion<'_>, id: &'a str, policies: &Policies) -> Result<Self, Fault> {
        let rule = policies.rule(id).ok_or_else(|| unknown_rule(id))?;
        let cost = cost(typed, rule.cost)?;
        let charges = charges(who(typed)?, rule.plans.iter().map(PlanName::as_str), cost, policies)?;
        Ok(Self { charges, rule: Some(id), on_failure: rule.on_failure, shadow: rule.shadow })
    }

    fn by_plans(
        typed: &'a TypedQuestion<'_>,
        plans: &[Text<'_>],
        policies: &Policies,
    ) -> Result<Self, Fault> {
        let cost = cost(typed, Cost::ONE)?;
        charges(who(typed)?, plans.iter().map(|plan| &**plan), cost, policies).map(Self::from)
    }

    fn by_own_limit(
        typed: &'a TypedQuestion<'_>,
        id: &'a str,
        capacity: Whole,
        rate: f64,
        policies: &Policies,
    ) -> Result<Self, Fault> {
        let limit = Limit::per_second_f64(rate, capacity.0).map_err(own_limit_fault)?;
        let limit = NamedLimit::new(own_limit_name(id, policies)?, limit);
        let charge = Charge::new(who(typed)?, limit, cost(typed, Cost::ONE)?).map_err(charge_fault)?;
        let rule = policies.rule(id);
        let (on_failure, shadow) = rule.map_or((None, false), |rule| (rule.on_failure, rule.shadow));
        Ok(Self { charges: charge.into(), rule: Some(id), on_failure, shadow })
    }
}

impl<'a> From<Charges<'a>> for Question<'a> {
    fn from(charges: Charges<'a>) -> Self {
        Self { charges, rule: None, on_failure: None, shadow: false }
    }
}

/// Charges one key under every limit of these plans.
pub(crate) fn charges<'k, 'p>(
    key: Key<'k>,
    plans: impl IntoIterator<Item = &'p str>,
    cost: Cost,
    policies: &Policies,
) -> Result<Charges<'k>, Fault> {
    let mut all = Vec::new();
    let mut plans = plans.into_iter().peekable();
    while let Some(name) = plans.next() {
        let plan = policies.plan(name).ok_or_else(|| unknown_plan(name))?;
        if let ([limit], true, None) = (plan.limits(), all.is_empty(), plans.peek()) {
            return Ok(Charge::new(key, limit.clone(), cost).map_err(charge_fault)?.into());
        }
        for limit in plan.limits() {
            all.push(Charge::new(key, limit.clone(), cost).map_err(charge_fault)?);
        }
    }
    Charges::new(all).map_err(charge_fault)
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

fn unknown_plan(name: &str) -> Fault {
    let shown: SmolStr = name.chars().take(64).collect();
    Fault::new("plans", format_args!("no plan is called {shown:?}"))
}

fn own_limit_fault(why: LimitError) -> Fault {
    let field = if matches!(why, LimitError::Capacity(_)) { "capacity" } else { "refillPerSecond" };
    Fault::new(field, why)
}

fn charge_fault(why: ChargeError) -> Fault {
    let field = if matches!(why, ChargeError::CostAboveCapacity { .. }) { "cost" } else { "plans" };
    Fault::new(field, why)
}
