//! Rules as they are written, and the checks that every name they use exists.

mod check;

use serde::{Deserialize, Serialize};
use spile_core::{Amount, FailurePolicy, PlanName};
use spile_policy::{EntryPattern, Matcher, Rule, RulePlans};
use utoipa::ToSchema;

pub(super) use self::check::{Known, check_all, check_limits, check_plan};
use super::spec::Source;
use super::value::{TextOrTexts, table};
use crate::input::tokens::Tokens;

/// The words of `plans` that do not name a plan.
const TENANT: &str = "tenant";
const UNLIMITED: &str = "unlimited";
const BANNED: &str = "banned";

/// A rule: which requests, who pays, under which plans and how much.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Rule, examples(json!({
    "id": "login", "match": {"path": "/login", "methods": ["POST"]}, "key": ["ip"], "plans": ["free"], "cost": 1,
    "mode": "enforce", "onFailure": "deny", "source": "file"
})))]
pub(crate) struct RuleSpec {
    /// The id. It may be left out if the path has it.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) id: Option<String>,
    /// The requests that it applies to; all, if it is left out.
    #[serde(rename = "match", deserialize_with = "table")]
    matches: Option<MatchSpec>,
    /// Who pays, the first that is found: `tenant`, `principal`, `ip`, `path`, `header:NAME`, `literal:NAME`,
    /// joined by `+` if need be. The tenant, or else the address, if it is left out. A descriptor pays for itself.
    key: Option<Vec<String>>,
    /// The plans; `tenant` for the plan of the caller; `unlimited` to let pass or `banned` to refuse what it matches.
    #[schema(required = true, nullable = false)]
    plans: Option<TextOrTexts>,
    /// The plan of callers who are no tenant, if `plans` is `tenant`.
    #[serde(alias = "anonymous_plan")]
    #[schema(format = "plan-name")]
    anonymous_plan: Option<String>,
    /// Tokens that a request spends.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    cost: Option<Tokens>,
    /// Whether the cost ignores estimates of routes and costs that answers report: for limits that count
    /// requests.
    #[serde(alias = "fixed_cost")]
    fixed_cost: Option<bool>,
    /// Whether it blocks.
    mode: Option<RuleMode>,
    /// Whether the hits of Envoy's descriptors have been used already (`apply_on_stream_done`): they are charged even if they are not
    /// available, into debt. Zero hits ask whether a token is available.
    late: Option<bool>,
    /// The policy while the store fails. By default that of the store.
    #[serde(alias = "on_failure")]
    on_failure: Option<OnFailure>,
    /// Ids of rules that are charged with this one.
    also: Option<Vec<String>>,
    /// Ids of rules that do not apply to the other descriptors of a request of Envoy's if this one applies.
    replaces: Option<Vec<String>>,
    /// Where it comes from.
    #[schema(read_only)]
    pub(crate) source: Option<Source>,
}

/// The requests that a rule applies to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Match)]
struct MatchSpec {
    /// A path, with `*` for any one segment and a last `*` for the rest.
    #[schema(format = "path-pattern", examples("/scores/*"))]
    path: Option<String>,
    /// Hosts, as in `api.example.com` or `*.example.com`; any, if it is left out.
    hosts: Option<Vec<String>>,
    /// Methods; any, if it is left out. GET covers HEAD.
    methods: Option<Vec<String>>,
    /// The domain of Envoy's descriptors, or `*` for any, for a rule that is for those and not for HTTP requests.
    #[schema(min_length = 1)]
    domain: Option<String>,
    /// The entries of such a descriptor, in order: `key`, `key=value` or `key=val*e`, where `*` stands for any text.
    #[schema(min_items = 1)]
    entries: Option<Vec<String>>,
    /// Whether such a descriptor may have other entries, too, in any order. The key consists of those listed.
    subset: Option<bool>,
    /// Keys of such entries whose values are not distinguished: all that match share a bucket.
    #[schema(min_items = 1)]
    shared: Option<Vec<String>>,
}

/// Whether a rule blocks.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum RuleMode {
    /// It blocks.
    Enforce,
    /// It decides and counts, and never blocks.
    Shadow,
    /// Of the descriptors in a request of Envoy's whose rules have this mode, one within its limits is enough.
    Any,
}

/// The policy while the store fails.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnFailure {
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
    /// The embedded store decides, with each limit divided by the number of replicas.
    Local,
}

impl From<&Rule> for RuleSpec {
    fn from(rule: &Rule) -> Self {
        let word = |word: &str| Some(TextOrTexts::One(word.to_owned()));
        let (plans, anonymous) = match &rule.plans {
            RulePlans::Listed(plans) => (Some(TextOrTexts::Many(texts(plans))), None),
            RulePlans::Tenant { anonymous } => (word(TENANT), anonymous.as_ref()),
            RulePlans::Unlimited => (word(UNLIMITED), None),
            RulePlans::Banned => (word(BANNED), None),
        };
        Self {
            id: Some(rule.id.to_string()),
            matches: (!rule.matcher.is_for_all()).then(|| MatchSpec::from(&rule.matcher)),
            key: rule.matcher.descriptor.is_none().then(|| rule.key.words().to_vec()),
            plans,
            anonymous_plan: anonymous.map(PlanName::to_string),
            cost: Some(Tokens(rule.cost.amount())),
            fixed_cost: rule.fixed_cost.then_some(true),
            mode: Some(match (rule.shadow, rule.descriptors.any) {
                (true, _) => RuleMode::Shadow,
                (false, true) => RuleMode::Any,
                (false, false) => RuleMode::Enforce,
            }),
            late: rule.descriptors.late.then_some(true),
            on_failure: rule.on_failure.map(OnFailure::from),
            also: listed(&rule.also),
            replaces: listed(&rule.descriptors.replaces),
            source: None,
        }
    }
}

impl RuleSpec {
    /// Returns the rule without members that have their default.
    pub(super) fn without_defaults(self) -> Self {
        Self {
            cost: self.cost.filter(|Tokens(cost)| *cost != Amount::TOKEN),
            mode: self.mode.filter(|mode| *mode != RuleMode::Enforce),
            ..self
        }
    }
}

impl From<&Matcher> for MatchSpec {
    fn from(Matcher { path, hosts, methods, descriptor }: &Matcher) -> Self {
        let descriptor = descriptor.as_ref();
        Self {
            path: path.as_ref().map(ToString::to_string),
            hosts: listed(hosts),
            methods: listed(methods),
            domain: descriptor.map(|descriptor| descriptor.domain.clone()),
            entries: descriptor.map(|descriptor| texts(&descriptor.entries)),
            subset: descriptor.and_then(|descriptor| descriptor.subset.then_some(true)),
            shared: descriptor.and_then(|descriptor| {
                let shared = descriptor.entries.iter().filter(|entry| entry.is_shared());
                listed(&shared.map(EntryPattern::key).collect::<Vec<_>>())
            }),
        }
    }
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn listed(values: &[impl ToString]) -> Option<Vec<String>> {
    (!values.is_empty()).then(|| texts(values))
}

impl From<FailurePolicy> for OnFailure {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Deny => Self::Deny,
            FailurePolicy::Local => Self::Local,
            _ => Self::Allow,
        }
    }
}

impl From<OnFailure> for FailurePolicy {
    fn from(policy: OnFailure) -> Self {
        match policy {
            OnFailure::Allow => Self::Allow,
            OnFailure::Deny => Self::Deny,
            OnFailure::Local => Self::Local,
        }
    }
}
