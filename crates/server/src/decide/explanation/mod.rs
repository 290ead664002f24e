//! Why a key is limited: the rule, who pays, each bucket, the last denials, and what an operator can change.

mod advice;
mod denials;
mod subject;

use std::time::Duration;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use spile_core::{Amount, ChargeError, Decision};
use spile_gateway::FoundRoute;
use spile_limiter::ShadowDecision;
use spile_observe::KeyDenial;
use spile_policy::{AskError, Chain, Enforced, Facts, Owed, Policy, PolicyRefusal, Rule};
use utoipa::ToSchema;

use self::denials::SeenDenials;
use self::subject::Subject;
use super::Decider;
use super::buckets::{BucketState, states, whole_ms};
use crate::input::tokens::Tokens;

/// The question to explain.
pub(crate) struct ExplainQuestion<'a> {
    /// Who pays.
    pub(crate) key: &'a str,
    /// The rule, or the limit of a route, if one is named.
    pub(crate) rule: Option<&'a str>,
    /// The cost of a request, if it is not that of the rule.
    pub(crate) cost: Option<Amount>,
    /// The request, if one is described.
    pub(crate) request: Option<Facts<'a>>,
    /// The gateway's route for that request.
    pub(crate) route: Option<&'a FoundRoute>,
    /// Whether there is a gateway.
    pub(crate) has_gateway: bool,
    /// Whether denials are kept at all.
    pub(crate) keeps_denials: bool,
}

/// Why a key is limited, or is not.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    /// The requested key.
    key: String,
    /// The rule that was examined. `null` without a rule.
    rule: Option<String>,
    /// Why this rule was chosen.
    chosen: RuleChoice,
    /// The gateway's route for the request, or the route whose limit `rule` is.
    route: Option<String>,
    /// The limits of that route that the request falls under besides the rule.
    route_limits: Vec<String>,
    /// The outcome of a request of this key now.
    outcome: ExplainedOutcome,
    /// The tenant that pays, if the key is one.
    tenant: Option<String>,
    /// The plans that are charged.
    plans: Vec<String>,
    /// Tokens that a request spends under the rule.
    #[schema(value_type = f64, minimum = 0)]
    cost: Tokens,
    /// The decisions of rules in shadow mode. They count, and never block.
    shadow: Vec<ShadowOutcome>,
    /// Milliseconds until a request would pass.
    retry_after_ms: u64,
    /// The buckets that pay. Empty if nothing is charged, or if the store does not answer.
    buckets: Vec<ExplainedBucket>,
    /// The last denials of the key that this instance has seen, the newest first.
    denials: Vec<KeyDenial>,
    /// The meaning, and what to change, in sentences.
    advice: Vec<String>,
}

/// The decision of a rule in shadow mode about a request.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShadowOutcome {
    /// The rule, or the limit of a route.
    rule_id: String,
    /// Whether it would have let the request pass.
    allowed: bool,
    /// The limit that would have denied it.
    limited_by: Option<String>,
    /// Milliseconds until it would let the request pass.
    retry_after_ms: u64,
}

/// Why a rule was examined.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RuleChoice {
    /// It was named.
    Named,
    /// It is the most specific one for the request that was described.
    Matched,
    /// It denied the key last.
    Denied,
    /// It is the rule for requests that no other rule matches.
    Default,
    /// There is no rule to examine.
    None,
}

/// The outcome of a request of the key now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ExplainedOutcome {
    /// It would pass.
    Allowed,
    /// A bucket has too few tokens.
    Denied,
    /// The rule refuses every request.
    Banned,
    /// Nothing limits it.
    Unlimited,
    /// The rule applies to tenants only, and this key is not a tenant's.
    TenantsOnly,
    /// The rule looks for a key that such a request does not have.
    NoKey,
    /// The gateway's route is not for this caller.
    RouteRefuses,
    /// It costs more than a bucket holds.
    NeverPasses,
    /// The store does not answer, and the failure policy decides.
    StoreLost,
}

/// A bucket that pays.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ExplainedBucket {
    /// Who pays. It differs from the requested key if the rule has one key for all, or if the bucket is of a route.
    key: String,
    /// Whether it is this bucket that decides: the one that denies, or else the emptiest.
    decides: bool,
    /// Tokens that a request spends from it.
    #[schema(value_type = f64, minimum = 0)]
    cost: Tokens,
    /// Whether it is only counted, because its rule is in shadow mode.
    shadow: bool,
    #[serde(flatten)]
    state: BucketState,
}

/// Explains what limits a key under a rule: the named one, else the one for the request, else the one that last denied the key, else the
/// default.
pub(crate) async fn explain(decider: &Decider, asked: &ExplainQuestion<'_>) -> Result<Explanation, AskError> {
    let policy = asked.route.map_or_else(|| decider.policy(), |route| route.policy().clone());
    // Refuses an invalid key even if no rule asks about it.
    policy.buckets_of(asked.key, None)?;
    let denials = SeenDenials::of(decider, &policy, asked.key);
    let (subject, chosen) = Subject::choose(&policy, asked, &denials)?;
    let owed = subject.owed(&policy, asked)?;
    let mut explained = Explanation::new(asked, &policy, &subject, chosen, denials.newest);
    let decision = explained.look(decider, &owed).await;
    if let Some(why) = owed.refusal.clone() {
        explained.outcome = refused_outcome(why)?;
    }
    let of_route = asked.route.and_then(|route| refusal_of_route(route, &policy, asked.key));
    if of_route.is_some()
        && matches!(explained.outcome, ExplainedOutcome::Allowed | ExplainedOutcome::Unlimited)
    {
        explained.outcome = ExplainedOutcome::RouteRefuses;
    }
    explained.advice = explained.advice(asked, &subject, &owed, decision.as_ref(), of_route);
    Ok(explained)
}

/// The outcome of a request that is refused regardless of its buckets.
fn refused_outcome(why: PolicyRefusal) -> Result<ExplainedOutcome, AskError> {
    match why {
        PolicyRefusal::Banned { .. } => Ok(ExplainedOutcome::Banned),
        PolicyRefusal::NoTenant { .. } => Ok(ExplainedOutcome::TenantsOnly),
        PolicyRefusal::NoKey { .. } => Ok(ExplainedOutcome::NoKey),
        PolicyRefusal::NeverPasses(_) => Ok(ExplainedOutcome::NeverPasses),
        PolicyRefusal::TooManyLimits(why) => Err(AskError::Chain(why)),
        PolicyRefusal::NoIdentity { why, .. } => Err(AskError::Identity(why)),
        _ => Err(AskError::Chain(ChargeError::Empty)),
    }
}

/// Why the gateway's route refuses this caller.
fn refusal_of_route(route: &FoundRoute, policy: &Policy, key: &str) -> Option<&'static str> {
    let client = subject::client_of(key);
    let tenant = client.strip_prefix("tenant:").map(|id| policy.tenant_of_claim(id, None));
    route.refusal(tenant, client.strip_prefix("principal:"))
}

/// The plan of a limit.
fn plan_of(limit: &str) -> &str {
    limit.split_once('/').map_or(limit, |(plan, _)| plan)
}

/// Whether a bucket has too few tokens. A decision in shadow mode allows what it would deny.
fn denies(decision: &Decision) -> bool {
    decision.limits().iter().any(|status| status.retry_after() > Duration::ZERO)
}

impl From<&ShadowDecision> for ShadowOutcome {
    fn from(watched: &ShadowDecision) -> Self {
        Self {
            rule_id: watched.rule.clone(),
            allowed: watched.would_allow(),
            limited_by: watched.limited_by().map(str::to_owned),
            retry_after_ms: whole_ms(watched.retry_after()),
        }
    }
}

impl Explanation {
    fn new(
        asked: &ExplainQuestion<'_>,
        policy: &Policy,
        subject: &Subject<'_>,
        chosen: RuleChoice,
        denials: Vec<KeyDenial>,
    ) -> Self {
        let (rule, route_limits) = (subject.rule(), subject.route_limits());
        let estimate = |rule: &Rule| {
            let estimate = asked.route.filter(|_| !rule.fixed_cost).and_then(FoundRoute::estimate);
            estimate.and_then(|estimate| estimate.of(&HeaderMap::new()))
        };
        let cost = |rule: &Rule| estimate(rule).unwrap_or(rule.cost).amount();
        let own_cost = rule.or(route_limits.first().copied()).map_or(Amount::ZERO, cost);
        let tenant = subject::client_of(asked.key).strip_prefix("tenant:").and_then(|id| policy.tenant(id));
        Self {
            key: asked.key.to_owned(),
            rule: rule.map(|rule| rule.id.to_string()),
            chosen,
            route: subject.route().map(str::to_owned),
            route_limits: route_limits.iter().map(|limit| limit.id.to_string()).collect(),
            outcome: ExplainedOutcome::Unlimited,
            tenant: tenant.map(|tenant| tenant.id.to_string()),
            plans: Vec::new(),
            cost: asked.cost.unwrap_or(own_cost).into(),
            shadow: Vec::new(),
            retry_after_ms: 0,
            buckets: Vec::new(),
            denials,
            advice: Vec::new(),
        }
    }

    /// Peeks at the buckets that pay, and at those of rules in shadow mode. The decision is the enforced one.
    async fn look(&mut self, decider: &Decider, owed: &Owed) -> Option<Decision> {
        let mut decision = None;
        if let Enforced::Charged(chain) = &owed.enforced {
            let enforced = self.look_at(decider, chain).await?;
            self.outcome =
                if denies(&enforced) { ExplainedOutcome::Denied } else { ExplainedOutcome::Allowed };
            self.retry_after_ms = whole_ms(enforced.retry_after());
            decision = Some(enforced);
        }
        for chain in &owed.shadow {
            let watched = self.look_at(decider, chain).await?;
            self.shadow.push(ShadowOutcome::from(&ShadowDecision::of(chain, watched)));
        }
        decision
    }

    /// Peeks at the buckets of a chain. `None` if the store does not answer.
    async fn look_at(&mut self, decider: &Decider, chain: &Chain) -> Option<Decision> {
        for bucket in chain.buckets() {
            let plan = plan_of(bucket.limit().name().unshadowed());
            if !self.plans.iter().any(|known| known == plan) {
                self.plans.push(plan.to_owned());
            }
        }
        let (decision, charges) = (decider.peek_chain(chain).await, chain.charges());
        let states = states(decider, chain, &decision).await;
        let (false, Ok(states)) = (decision.degraded(), states) else {
            self.outcome = ExplainedOutcome::StoreLost;
            self.buckets.clear();
            return None;
        };
        let binding = decision.binding_index();
        let bucket = |(index, state): (usize, BucketState)| ExplainedBucket {
            key: charges.get(index).map(|charge| charge.key().as_str().to_owned()).unwrap_or_default(),
            decides: index == binding && !chain.is_shadow(),
            cost: chain.buckets().get(index).map_or(Amount::ZERO, spile_policy::BucketCharge::cost).into(),
            shadow: chain.is_shadow(),
            state,
        };
        let looked = states.into_iter().enumerate().map(bucket).collect::<Vec<_>>();
        self.buckets.extend(looked);
        Some(decision)
    }
}
