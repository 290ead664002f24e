//! Why a key is limited: the rule, who pays, each bucket, the last denials, and what an operator can change.

use std::time::Duration;

use serde::Serialize;
use spile_core::{Decision, Limit, LimitStatus, Reason};
use spile_observe::KeyDenial;
use spile_policy::{AskError, Chain, DEFAULT_RULE, Facts, Policy, Rule, RulePlans};
use utoipa::ToSchema;

use super::buckets::{BucketState, refill, rough, whole_ms};
use super::{Decider, StoredBucket};

/// Why a key is limited, or is not.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    /// The key, as it was asked about.
    key: String,
    /// The rule that was looked at. `null` if there is none.
    rule: Option<String>,
    /// Why this rule.
    chosen: RuleChoice,
    /// What a request of this key would meet now.
    outcome: ExplainedOutcome,
    /// The tenant that pays, if the key is one.
    tenant: Option<String>,
    /// The plans that are charged.
    plans: Vec<String>,
    /// Tokens that a request spends.
    cost: u64,
    /// Whether the rule is in shadow mode: it counts and never blocks.
    shadow: bool,
    /// Milliseconds until a request would pass.
    retry_after_ms: u64,
    /// The buckets that pay. None if nothing is charged, or if the store does not answer.
    buckets: Vec<ExplainedBucket>,
    /// The last denials of the key that this instance has seen, the newest first.
    denials: Vec<KeyDenial>,
    /// What it means, and what to change, in sentences.
    advice: Vec<String>,
}

/// Why a rule was looked at.
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
    /// There is no rule to look at.
    None,
}

/// What a request of the key would meet now.
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
    /// The rule is for tenants, and the key is none.
    TenantsOnly,
    /// It costs more than a bucket holds.
    NeverPasses,
    /// The store does not answer, and the failure policy decides.
    StoreLost,
}

/// A bucket that pays.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ExplainedBucket {
    /// Who pays. Another key than the one that was asked about, if the rule has one key for all.
    key: String,
    /// Whether it is this bucket that decides: the one that denies, or else the emptiest.
    decides: bool,
    #[serde(flatten)]
    state: BucketState,
}

/// Explains what limits a key under a rule: the one that is named, or else the one for the request, or else the one that
/// denied the key last, or else the default. `keeps_denials` says whether denials are kept at all.
pub(crate) async fn explain(
    decider: &Decider,
    key: &str,
    named: Option<&str>,
    request: Option<&Facts<'_>>,
    keeps_denials: bool,
) -> Result<Explanation, AskError> {
    let (policy, denials) = (decider.policy(), decider.denials_of(key));
    let (rule, chosen) = choose(&policy, named, request, &denials)?;
    let tenant = key.strip_prefix("tenant:").and_then(|id| policy.tenant(id));
    let mut explained = Explanation {
        key: key.to_owned(),
        rule: rule.map(|rule| rule.id.to_string()),
        chosen,
        outcome: ExplainedOutcome::Unlimited,
        tenant: tenant.map(|tenant| tenant.id.to_string()),
        plans: Vec::new(),
        cost: rule.map_or(0, |rule| rule.cost.get().into()),
        shadow: rule.is_some_and(|rule| rule.shadow),
        retry_after_ms: 0,
        buckets: Vec::new(),
        denials,
        advice: Vec::new(),
    };
    let owed = match rule {
        Some(rule) => policy.owed_by_identity(&rule.id, key, None),
        // Asks nothing, and refuses a key that is none.
        None => policy.buckets_of(key, None).map(|_| None),
    };
    let mut decision = None;
    match owed {
        Ok(Some(chain)) => decision = explained.look(decider, &chain).await,
        Ok(None) => {}
        Err(AskError::Banned(_)) => explained.outcome = ExplainedOutcome::Banned,
        Err(AskError::TenantsOnly(_)) => explained.outcome = ExplainedOutcome::TenantsOnly,
        Err(why @ AskError::NeverPasses(_)) => {
            explained.outcome = ExplainedOutcome::NeverPasses;
            explained.advice.push(format!("{why}: lower the cost of the rule, or raise the capacity."));
        }
        Err(why) => return Err(why),
    }
    explained.advise(rule, decision.as_ref(), keeps_denials);
    Ok(explained)
}

fn choose<'p>(
    policy: &'p Policy,
    named: Option<&str>,
    request: Option<&Facts<'_>>,
    denials: &[KeyDenial],
) -> Result<(Option<&'p Rule>, RuleChoice), AskError> {
    if let Some(id) = named {
        let unknown = || AskError::UnknownRule(id.chars().take(64).collect());
        return Ok((Some(policy.rule(id).ok_or_else(unknown)?), RuleChoice::Named));
    }
    if let Some(facts) = request {
        let rule = policy.rule_for(facts);
        return Ok((rule, if rule.is_some() { RuleChoice::Matched } else { RuleChoice::None }));
    }
    if let Some(rule) = denials.iter().find_map(|denial| policy.rule(&denial.rule)) {
        return Ok((Some(rule), RuleChoice::Denied));
    }
    let rule = policy.rule(DEFAULT_RULE);
    Ok((rule, if rule.is_some() { RuleChoice::Default } else { RuleChoice::None }))
}

impl Explanation {
    /// Peeks at the buckets that pay.
    async fn look(&mut self, decider: &Decider, chain: &Chain) -> Option<Decision> {
        for bucket in chain.charges().iter() {
            let plan = plan_of(bucket.limit().name().as_str());
            if !self.plans.iter().any(|known| known == plan) {
                self.plans.push(plan.to_owned());
            }
        }
        let decision = decider.peek(Some(chain)).await;
        let stored = decider.store().stored(&chain.charges()).await;
        let (false, Ok(stored)) = (decision.degraded(), stored) else {
            self.outcome = ExplainedOutcome::StoreLost;
            return None;
        };
        let binding = decision.binding_index();
        let charges = chain.charges();
        let bucket = |(index, (status, stored)): (usize, (&LimitStatus, StoredBucket))| ExplainedBucket {
            key: charges.get(index).map(|charge| charge.key().as_str().to_owned()).unwrap_or_default(),
            decides: index == binding,
            state: BucketState::new(status, stored),
        };
        self.buckets = decision.limits().iter().zip(stored).enumerate().map(bucket).collect();
        // A rule in shadow mode allows what it would deny.
        let denies = decision.limits().iter().any(|status| status.retry_after() > Duration::ZERO);
        self.outcome = if denies { ExplainedOutcome::Denied } else { ExplainedOutcome::Allowed };
        self.retry_after_ms = whole_ms(decision.retry_after());
        Some(decision)
    }

    fn advise(&mut self, rule: Option<&Rule>, decision: Option<&Decision>, keeps_denials: bool) {
        let mut advice = std::mem::take(&mut self.advice);
        let id = rule.map(|rule| rule.id.as_str()).unwrap_or_default();
        match (self.outcome, decision) {
            (ExplainedOutcome::Denied, Some(decision)) => advice.extend(self.when_denied(rule, decision.binding())),
            (ExplainedOutcome::Allowed, Some(decision)) => advice.extend(self.when_allowed(rule, decision.binding())),
            (ExplainedOutcome::Banned, _) => advice.push(format!(
                "Rule `{id}`, or one in its `also`, refuses every request that it matches (`plans = \"banned\"`). Change \
                 what it matches, or give it a plan."
            )),
            (ExplainedOutcome::TenantsOnly, _) => advice.push(format!(
                "Rule `{id}` is for tenants alone, and `{}` is none. The caller needs an API key of a tenant \
                 (`spile tenant add`), or the rule an `anonymous_plan`.",
                self.key
            )),
            (ExplainedOutcome::StoreLost, _) => advice.push(
                "The store does not answer, so its failure policy decides (`on_failure`): see `GET /readyz` and the log."
                    .to_owned(),
            ),
            (ExplainedOutcome::Unlimited, _) if rule.is_none() => {
                advice.push("No rule is for such requests, and what no rule is for is not limited.".to_owned());
            }
            (ExplainedOutcome::Unlimited, _) => advice.push(format!("Rule `{id}` does not limit this key.")),
            _ => {}
        }
        if self.shadow {
            advice.push(format!("Rule `{id}` is in shadow mode: it counts, and never blocks a request."));
        }
        advice.extend(rule.and_then(|rule| self.when_never_found(rule)));
        let of_route = |denial: &&KeyDenial| {
            !denial.rule.is_empty() && self.chosen == RuleChoice::Default && denial.rule != id
        };
        if let Some(denial) = self.denials.iter().find(of_route) {
            advice.push(format!(
                "It was last denied by `{}`, which is no rule of now: a limit of a route, or a rule that is gone.",
                denial.rule
            ));
        }
        if !keeps_denials {
            advice.push("Denials are not kept, because `observe.enabled` is `false`.".to_owned());
        }
        self.advice = advice;
    }

    fn when_denied(&self, rule: Option<&Rule>, status: &LimitStatus) -> Vec<String> {
        let (limit, name) = (status.limit(), status.name().as_str());
        let wait = rough(Duration::from_millis(self.retry_after_ms));
        let mut advice = vec![format!(
            "Limit `{name}` has {} of {} tokens and gets {} back; a request costs {}. It passes in {wait}.",
            status.remaining(),
            limit.capacity(),
            refill(limit),
            self.cost
        )];
        if self.is_steady(name, limit) {
            advice.push(format!(
                "It was denied for longer than the bucket takes to fill ({}): the caller asks for more than `refill` gives, \
                 and a larger `capacity` alone would not help for long.",
                rough(limit.fill_time())
            ));
        }
        let plan = plan_of(name);
        advice.push(self.how_to_allow_more(rule, plan));
        advice.push(format!("To let it through now, once: `spile reset {} --plan {plan}`.", self.key));
        advice
    }

    fn when_allowed(&self, rule: Option<&Rule>, status: &LimitStatus) -> Vec<String> {
        if let Some(last) = self.denials.first() {
            let wait = rough(Duration::from_millis(last.retry_after_ms));
            let mut advice = vec![format!(
                "A request that costs {} would pass now. The last denial was by `{}`, and told the caller to wait for {wait}.",
                self.cost, last.limit
            )];
            advice.push(if last.reason == Reason::FailClosed.as_str() {
                "It was denied because the store did not answer, and `on_failure` is `deny`.".to_owned()
            } else {
                self.how_to_allow_more(rule, plan_of(&last.limit))
            });
            return advice;
        }
        if self.buckets.iter().all(|bucket| !bucket.state.exists()) {
            return vec![
                "It has no bucket yet: nothing was spent, or all of it has come back. If it should have one, look at its \
                 spelling: a key has its kind in front, as in `tenant:acme`, `ip:203.0.113.7` or `principal:ann`."
                    .to_owned(),
            ];
        }
        let (left, capacity) = (status.remaining(), status.limit().capacity());
        vec![format!("A request would pass: {left} of {capacity} tokens are left in `{}`.", status.name())]
    }

    fn how_to_allow_more(&self, rule: Option<&Rule>, plan: &str) -> String {
        let by_tenant = matches!(rule.map(|rule| &rule.plans), Some(RulePlans::Tenant { .. }));
        match &self.tenant {
            Some(tenant) if by_tenant => format!(
                "To allow more, move the tenant to a larger plan (`spile tenant put {tenant} --plan NAME`), or raise \
                 `capacity` (at once) or `refill` (in the long run) of plan `{plan}`."
            ),
            None if by_tenant => format!(
                "The key is no tenant, so it has the plan of anonymous callers, `{plan}`. With the API key of a tenant the \
                 caller has a plan of its own (`spile tenant add`)."
            ),
            _ => format!(
                "To allow more, raise `capacity` (at once) or `refill` (in the long run) of plan `{plan}`, or lower the \
                 `cost` of the rule."
            ),
        }
    }

    /// Says so if requests never have a key of this kind under the rule.
    fn when_never_found(&self, rule: &Rule) -> Option<String> {
        let kind = self.key.split_once(':').map_or("", |(kind, _)| kind);
        let finds = |word: &String| {
            let of_word = match word.split_once(':').map_or(word.as_str(), |(first, _)| first) {
                "header" => "sha256",
                "literal" => "static",
                other => other,
            };
            // Keys of several parts are written as one.
            of_word == kind || word.contains('+') || of_word == "static"
        };
        let words = rule.key.words();
        if rule.matcher.descriptor.is_some() || self.buckets.is_empty() || words.iter().any(finds) {
            return None;
        }
        Some(format!(
            "Rule `{}` finds keys by {}, and `{}` is none of these: only questions that name it as `identity` spend from \
             these buckets.",
            rule.id,
            words.join(", "),
            self.key
        ))
    }

    /// Whether denials by this limit lasted longer than its bucket takes to fill.
    fn is_steady(&self, limit: &str, shape: &Limit) -> bool {
        let by = || self.denials.iter().filter(|denial| denial.limit == limit);
        let first = by().map(|denial| denial.first_at_ms).min().unwrap_or_default();
        let last = by().map(|denial| denial.last_at_ms).max().unwrap_or_default();
        u128::from(last - first) > shape.fill_time().as_millis()
    }
}

/// The plan of a limit.
fn plan_of(limit: &str) -> &str {
    limit.split_once('/').map_or(limit, |(plan, _)| plan)
}
