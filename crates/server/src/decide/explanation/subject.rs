//! Which rule is examined, and what a request owes under it.

use spile_policy::{
    AskError, DEFAULT_RULE, Facts, Owed, Policy, PolicyRefusal, ResolvedKey, Rule, RulePlans,
};

use super::denials::SeenDenials;
use super::{ExplainQuestion, RuleChoice, plan_of};

/// The rule or plans under which a request is explained.
pub(super) enum Subject<'a> {
    /// A request: the most specific rule for it, and the limits of its route.
    Request { facts: &'a Facts<'a>, route: Option<&'a str>, rule: Option<&'a Rule>, limits: Vec<&'a Rule> },
    /// One rule.
    Rule(&'a Rule),
    /// One limit of a route.
    RouteLimit(&'a str, &'a Rule),
    /// No rule.
    Nothing,
}

impl<'a> Subject<'a> {
    /// Chooses the named rule, else those for the request, else the one that last denied the key, else the default.
    pub(super) fn choose(
        policy: &'a Policy,
        asked: &'a ExplainQuestion<'a>,
        denials: &SeenDenials,
    ) -> Result<(Self, RuleChoice), AskError> {
        if let Some(id) = asked.rule {
            let of_route = || policy.route_limit(id).map(|(route, limit)| Self::RouteLimit(route, limit));
            let named = policy.rule(id).map(Self::Rule).or_else(of_route);
            let unknown = || AskError::UnknownRule(id.chars().take(64).collect());
            return Ok((named.ok_or_else(unknown)?, RuleChoice::Named));
        }
        if let Some(facts) = &asked.request {
            let (rule, limits) = (policy.rule_for(facts), policy.route_limits_for(facts).collect::<Vec<_>>());
            let found = rule.is_some() || !limits.is_empty();
            let route = asked.route.map(spile_gateway::FoundRoute::name);
            let chosen = if found { RuleChoice::Matched } else { RuleChoice::None };
            return Ok((Self::Request { facts, route, rule, limits }, chosen));
        }
        if let Some(subject) = Self::that_denied(policy, denials) {
            return Ok((subject, RuleChoice::Denied));
        }
        let default = policy.rule(DEFAULT_RULE).map(|rule| (Self::Rule(rule), RuleChoice::Default));
        Ok(default.unwrap_or((Self::Nothing, RuleChoice::None)))
    }

    /// The limit of the route, or the rule, that denied the key last.
    fn that_denied(policy: &'a Policy, denials: &SeenDenials) -> Option<Self> {
        if let (Some(last), Some(on)) = (denials.newest.first(), &denials.last_route) {
            let charges = |limit: &Rule| may_charge(limit, plan_of(&last.limit));
            let of_route = policy.route_limits().find(|(route, limit)| route == on && charges(limit));
            if let Some((route, limit)) = of_route {
                return Some(Self::RouteLimit(route, limit));
            }
        }
        denials.newest.iter().find_map(|denial| policy.rule(&denial.rule)).map(Self::Rule)
    }

    /// The charges of the key.
    pub(super) fn owed(&self, policy: &Policy, asked: &ExplainQuestion<'_>) -> Result<Owed, AskError> {
        match self {
            Self::Request { facts, .. } => {
                policy.owed_by_description(facts, client_of(asked.key), asked.cost)
            }
            Self::Rule(rule) => refused_or_not(policy.owed_by_identity(&rule.id, asked.key, asked.cost)),
            Self::RouteLimit(_, limit) => {
                let client = client_of(asked.key);
                refused_or_not(policy.owed_by_route_limit(&limit.id, client, asked.cost))
            }
            Self::Nothing => Ok(Owed::default()),
        }
    }

    /// The rule, or the limit of a route that is examined by itself.
    pub(super) const fn rule(&self) -> Option<&'a Rule> {
        match self {
            Self::Request { rule, .. } => *rule,
            Self::Rule(rule) | Self::RouteLimit(_, rule) => Some(rule),
            Self::Nothing => None,
        }
    }

    pub(super) const fn route(&self) -> Option<&'a str> {
        match self {
            Self::Request { route, .. } => *route,
            Self::RouteLimit(route, _) => Some(route),
            _ => None,
        }
    }

    /// The limits of the route that apply besides the rule.
    pub(super) fn route_limits(&self) -> &[&'a Rule] {
        if let Self::Request { limits, .. } = self { limits } else { &[] }
    }

    /// The rule by which this plan is charged.
    pub(super) fn charging(&self, plan: &str) -> Option<&'a Rule> {
        let all = || self.rule().into_iter().chain(self.route_limits().iter().copied());
        let names = |rule: &&Rule| rule.plans.known().iter().any(|name| name.as_str() == plan);
        let of_tenant = |rule: &&Rule| matches!(rule.plans, RulePlans::Tenant { .. });
        all().find(names).or_else(|| all().find(of_tenant)).or_else(|| all().next())
    }
}

/// The client of a key that is of a route, or else the key.
pub(super) fn client_of(key: &str) -> &str {
    ResolvedKey::split_route(key).map_or(key, |(client, _)| client)
}

fn may_charge(rule: &Rule, plan: &str) -> bool {
    let by_tenant = matches!(rule.plans, RulePlans::Tenant { .. });
    by_tenant || rule.plans.known().iter().any(|name| name.as_str() == plan)
}

/// Returns the charges of a named key. A refusal by the rule is not an error.
fn refused_or_not(owed: Result<Owed, AskError>) -> Result<Owed, AskError> {
    let refused = |why| Ok(Owed { refusal: Some(why), ..Owed::default() });
    match owed {
        Err(AskError::Banned(rule)) => refused(PolicyRefusal::Banned { rule }),
        Err(AskError::TenantsOnly(rule)) => refused(PolicyRefusal::NoTenant { rule }),
        Err(AskError::NeverPasses(why)) => refused(PolicyRefusal::NeverPasses(why)),
        owed => owed,
    }
}
