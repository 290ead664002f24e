//! Advice: the meaning of an explanation, and what to change, in sentences.

use std::time::Duration;

use spile_core::{Amount, Decision, Limit, LimitStatus, Reason};
use spile_observe::KeyDenial;
use spile_policy::{Owed, PolicyRefusal, Rule, RulePlans};

use super::subject::{Subject, client_of};
use super::{ExplainQuestion, ExplainedOutcome, Explanation, RuleChoice, ShadowOutcome, plan_of};
use crate::decide::buckets::{refill, rough};

impl Explanation {
    /// Returns the sentences. `of_route` is why the gateway's route refuses the caller.
    pub(super) fn advice(
        &self,
        asked: &ExplainQuestion<'_>,
        subject: &Subject<'_>,
        owed: &Owed,
        decision: Option<&Decision>,
        of_route: Option<&'static str>,
    ) -> Vec<String> {
        let mut advice = match (self.outcome, decision) {
            (ExplainedOutcome::Denied, Some(decision)) => self.when_denied(subject, decision.binding()),
            (ExplainedOutcome::Allowed, Some(decision)) => self.when_allowed(subject, decision),
            (ExplainedOutcome::RouteRefuses, _) => vec![format!(
                "Route `{}` is not for this caller, regardless of limits: {}. See its `require_api_key` and \
                 `only_plans`.",
                subject.route().unwrap_or_default(),
                of_route.unwrap_or_default()
            )],
            (ExplainedOutcome::StoreLost, _) => vec![
                "The store does not answer, so its failure policy decides (`on_failure`): see `GET /readyz` and the log."
                    .to_owned(),
            ],
            (ExplainedOutcome::Unlimited, _) if self.chosen == RuleChoice::None => {
                vec!["No rule matches such requests, and requests without a rule are not limited.".to_owned()]
            }
            (ExplainedOutcome::Unlimited, _) => {
                vec![format!("Rule `{}` does not limit this key.", self.rule.as_deref().unwrap_or_default())]
            }
            _ => owed.refusal.iter().map(|why| self.when_refused(why)).collect(),
        };
        advice.extend(self.shadow.iter().map(ShadowOutcome::advice));
        advice.extend(subject.rule().and_then(|rule| self.when_never_found(subject, rule)));
        advice.extend(when_routed(asked));
        let is_gone =
            |denial: &&KeyDenial| !denial.rule.is_empty() && self.rule.as_deref() != Some(&denial.rule);
        if let (RuleChoice::Default | RuleChoice::None, None, Some(denial)) =
            (self.chosen, &asked.request, self.denials.iter().find(is_gone))
        {
            advice.push(format!("It was last denied by `{}`, a rule that was removed.", denial.rule));
        }
        if !asked.keeps_denials {
            advice.push("Denials are not kept, because `observe.enabled` is `false`.".to_owned());
        }
        advice
    }

    fn when_refused(&self, why: &PolicyRefusal) -> String {
        match why {
            PolicyRefusal::Banned { rule } => format!(
                "Rule `{rule}` refuses every request that it matches (`plans = \"banned\"`). Change what it matches, or \
                 give it a plan."
            ),
            PolicyRefusal::NoTenant { rule } => format!(
                "Rule `{rule}` is for tenants only, and `{}` is not a tenant. The caller needs an API key of a tenant \
                 (`spile tenant add`), or the rule an `anonymous_plan`.",
                client_of(&self.key)
            ),
            PolicyRefusal::NoKey { rule, words } => format!(
                "Rule `{rule}` finds keys by {words}, and an anonymous request has none of these: it is refused. Add `ip` to \
                 the keys of the rule, to limit such requests instead."
            ),
            why => format!("{why}. Lower the cost, or raise the capacity."),
        }
    }

    fn when_denied(&self, subject: &Subject<'_>, status: &LimitStatus) -> Vec<String> {
        if let Some(hold) = status.limit().hold() {
            return self.when_all_are_held(subject, status, hold);
        }
        let (limit, name) = (status.limit(), status.name().as_str());
        let decides = self.buckets.iter().find(|bucket| bucket.decides);
        let back = match limit.windows() {
            None => format!("and gets {} back", refill(limit)),
            Some(_) => format!("left of its quota ({})", refill(limit)),
        };
        let mut advice = vec![format!(
            "Limit `{name}` has {} of {} tokens {back}; a request costs {}. It passes in {}.",
            status.remaining(),
            limit.capacity(),
            decides.map_or(self.cost, |bucket| bucket.cost),
            rough(Duration::from_millis(self.retry_after_ms))
        )];
        if status.owed() > Amount::ZERO {
            advice.push(format!(
                "It owes {} tokens: late charges took more than it had, and nothing passes until that is repaid.",
                status.owed()
            ));
        }
        if limit.windows().is_none() && self.is_steady(name, limit) {
            advice.push(format!(
                "It was denied for longer than the bucket takes to fill ({}): the caller asks for more than `refill` gives, \
                 and a larger `capacity` alone would not help for long.",
                rough(limit.fill_time())
            ));
        }
        let plan = plan_of(name);
        advice.push(self.how_to_allow_more(subject, plan, Some(limit)));
        let payer = decides.map_or(&*self.key, |bucket| &bucket.key);
        advice.push(format!("To let it through now, once: `spile reset {} --plan {plan}`.", quoted(payer)));
        advice
    }

    fn when_all_are_held(
        &self,
        subject: &Subject<'_>,
        status: &LimitStatus,
        hold_time: Duration,
    ) -> Vec<String> {
        let (limit, name) = (status.limit(), status.name().as_str());
        let decides = self.buckets.iter().find(|bucket| bucket.decides);
        let held =
            decides.and_then(|bucket| bucket.state.held()).unwrap_or_else(|| limit.capacity().whole_tokens());
        let (plan, payer) = (plan_of(name), decides.map_or(&*self.key, |bucket| &bucket.key));
        vec![
            format!(
                "{held} of {} permits of limit `{name}` are held. A request passes as soon as one is released, or ends \
                 because its holder did not renew it for {}: `spile inspect {} --plan {plan}` tells who holds them.",
                limit.capacity(),
                rough(hold_time),
                quoted(payer)
            ),
            self.how_to_allow_more(subject, plan, Some(limit)),
            format!(
                "To free all of them now: `spile reset {} --plan {plan}`. Their holders are not stopped, and learn it when \
                 they renew.",
                quoted(payer)
            ),
        ]
    }

    fn when_allowed(&self, subject: &Subject<'_>, decision: &Decision) -> Vec<String> {
        let pays =
            |denial: &&KeyDenial| self.buckets.iter().any(|bucket| bucket.state.limit() == denial.limit);
        if let Some(last) = self.denials.iter().find(pays) {
            let wait = rough(Duration::from_millis(last.retry_after_ms));
            let mut advice = vec![format!(
                "A request that costs {} would pass now. The last denial was by `{}`, and asked the caller to wait {wait}.",
                self.cost, last.limit
            )];
            advice.push(if last.reason == Reason::FailClosed.as_str() {
                "It was denied because the store did not answer, and `on_failure` is `deny`.".to_owned()
            } else {
                let denied = decision.limits().iter().find(|status| status.name().as_str() == last.limit);
                self.how_to_allow_more(subject, plan_of(&last.limit), denied.map(LimitStatus::limit))
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
        let status = decision.binding();
        let (left, capacity) = (status.remaining(), status.limit().capacity());
        if status.limit().is_concurrency() {
            return vec![format!(
                "A request would pass: {} of {capacity} permits of `{}` are held.",
                capacity - left,
                status.name()
            )];
        }
        vec![format!("A request would pass: {left} of {capacity} tokens are left in `{}`.", status.name())]
    }

    /// `limit` is the one that denies, if it still exists.
    fn how_to_allow_more(&self, subject: &Subject<'_>, plan: &str, limit: Option<&Limit>) -> String {
        let member = match limit.and_then(Limit::windows) {
            None if limit.is_some_and(Limit::is_concurrency) => "`concurrency`",
            None => "`capacity` (at once) or `refill` (in the long run)",
            Some(_) => "`quota`",
        };
        let rule = subject.charging(plan);
        let by_tenant = rule.is_some_and(|rule| matches!(rule.plans, RulePlans::Tenant { .. }));
        match &self.tenant {
            Some(tenant) if by_tenant => format!(
                "To allow more, move the tenant to a larger plan (`spile tenant put {tenant} --plan NAME`), or raise \
                 {member} of plan `{plan}`."
            ),
            None if by_tenant => format!(
                "The key is not a tenant's, so it has the plan of anonymous callers, `{plan}`. With the API key of a tenant the \
                 caller has that tenant's plan (`spile tenant add`)."
            ),
            // A permit is one permit at any cost.
            _ if limit.is_some_and(Limit::is_concurrency) => {
                format!("To allow more, raise {member} of plan `{plan}`.")
            }
            _ => format!(
                "To allow more, raise {member} of plan `{plan}`, or lower the `cost` of rule `{}`.",
                rule.map(|rule| rule.id.as_str()).unwrap_or_default()
            ),
        }
    }

    /// Returns a sentence if requests never have a key of this kind under the rule.
    fn when_never_found(&self, subject: &Subject<'_>, rule: &Rule) -> Option<String> {
        let client = client_of(&self.key);
        let kind = client.split_once(':').map_or("", |(kind, _)| kind);
        let finds = |word: &String| {
            let of_word = match word.split_once(':').map_or(word.as_str(), |(first, _)| first) {
                "header" => "sha256",
                "literal" => "static",
                other => other,
            };
            // A request that is described has a path, and its route is known.
            let is_described =
                matches!(subject, Subject::Request { .. }) && matches!(of_word, "path" | "route");
            // Keys of several parts are written as one.
            of_word == kind || is_described || word.contains('+') || of_word == "static"
        };
        let words = rule.key.words();
        if rule.matcher.descriptor.is_some() || self.buckets.is_empty() || words.iter().any(finds) {
            return None;
        }
        Some(format!(
            "Rule `{}` finds keys by {}, and `{client}` is none of these: only questions that name it as `identity` spend \
             from these buckets.",
            rule.id,
            words.join(", ")
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

impl ShadowOutcome {
    fn advice(&self) -> String {
        let rule = &self.rule_id;
        match &self.limited_by {
            None => format!(
                "Rule `{rule}` is in shadow mode: it would let the request pass, and never blocks requests."
            ),
            Some(limit) => format!(
                "Rule `{rule}` is in shadow mode: it would deny the request by limit `{limit}` for {}, and never blocks requests.",
                rough(Duration::from_millis(self.retry_after_ms))
            ),
        }
    }
}

/// The gateway's treatment of the request that is described.
fn when_routed(asked: &ExplainQuestion<'_>) -> Vec<String> {
    let Some(route) = asked.route else {
        let unrouted = asked.has_gateway && asked.request.is_some() && asked.rule.is_none();
        let text = "No route of the gateway is for such a request, and the gateway answers it with 404. This is what \
                    other listeners would decide.";
        return unrouted.then(|| text.to_owned()).into_iter().collect();
    };
    let mut advice = Vec::new();
    if route.load_factor() < 1.0 {
        advice.push(format!(
            "The upstreams of route `{}` are overloaded: the limits of its requests are multiplied by {:.2} for now.",
            route.name(),
            route.load_factor()
        ));
    }
    if route.has_late_cost() {
        let estimate =
            route.estimate().map_or(String::new(), |estimate| format!(" and `estimate = \"{estimate}\"`"));
        advice.push(format!(
            "Route `{}` has `cost_from_response`{estimate}: the cost is corrected when the upstream has answered.",
            route.name()
        ));
    }
    advice
}

/// Quotes a key for a shell.
fn quoted(key: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/@+".contains(letter);
    if key.chars().all(is_plain) { key.to_owned() } else { format!("'{}'", key.replace('\'', r"'\''")) }
}
