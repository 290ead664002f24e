//! Rules as JSON.

use serde::{Deserialize, Serialize};
use spile_core::{FailurePolicy, Limit, PlanName};
use spile_policy::{HostPattern, Rule, RulePlans};
use utoipa::ToSchema;

use super::{Document, Source};
use crate::registry::Kind;
use crate::typed::{Bounds, Object, Whole};

/// A rule as it is sent: which requests, who pays, under which plans and how much.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
#[schema(examples(
    json!({"match": {"path": "/login", "methods": ["POST"]}, "key": ["ip"], "plans": ["free"]})
))]
pub(crate) struct RuleDocument {
    /// As it was read: the name in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    id: Option<String>,
    /// As it was read.
    #[serde(rename = "source", skip_serializing_if = "Option::is_none")]
    _source: Option<Source>,
    /// Which requests it is for; all, where it is left out.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<MatchDocument>)]
    matches: Option<Object<MatchDocument>>,
    /// Who pays, the first that is found: `tenant`, `principal`, `ip`, `path`, `header:NAME`, `literal:NAME`,
    /// joined by `+` if need be. The tenant, or else the address, where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Vec<String>>,
    /// The plans; `tenant` for the plan of the caller; `unlimited` to let pass or `banned` to refuse what it matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = true, nullable = false)]
    plans: Option<Plans>,
    /// The plan of callers who are no tenant, where `plans` is `tenant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "plan-name")]
    anonymous_plan: Option<String>,
    /// Tokens that a request spends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, maximum = 1_000_000_000)]
    cost: Option<Whole>,
    /// Whether it blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// What happens when the store fails; what the store's own setting says, where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_failure: Option<OnFailure>,
    /// Ids of rules that are charged with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    also: Option<Vec<String>>,
}

/// Which requests a rule is for.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
struct MatchDocument {
    /// A path, with `*` for any one segment and a last `*` for whatever follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "path-pattern", examples("/scores/*"))]
    path: Option<String>,
    /// Hosts, as in `api.example.com` or `*.example.com`; any, where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<Vec<String>>,
    /// Methods; any, where it is left out. GET covers HEAD.
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<Vec<String>>,
    /// The domain of Envoy's descriptors, or `*` for any, for a rule that is for those and not for HTTP requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    domain: Option<String>,
    /// The entries of such a descriptor, in order: `key`, `key=value` or `key=val*e`, where `*` stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    entries: Option<Vec<String>>,
    /// Whether such a descriptor may have other entries, too, in any order. The key is made of those listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<bool>,
}

/// Plans by name, or `tenant`.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "neither")]
enum Plans {
    /// A plan, or `tenant` for the plan of the tenant that asks.
    Word(String),
    /// A chain of one or more: all are charged, or none is.
    Listed(Vec<String>),
}

/// Whether a rule blocks.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// It blocks.
    Enforce,
    /// It decides and counts, and never blocks.
    Shadow,
}

/// What happens when the store fails.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnFailure {
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
    /// The embedded store decides, with each limit divided by the number of replicas.
    Local,
}

impl Document for RuleDocument {
    const KIND: Kind = Kind::Rules;
    const NAME: &str = "id";

    fn name(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl Bounds for RuleDocument {
    fn bound_of(field: &str) -> Option<String> {
        Some(match field {
            "id" => "1 to 64 letters, digits, `.`, `_` or `-`".to_owned(),
            "source" => "`file` or `registry`, and may be left out".to_owned(),
            "match" => {
                "an object with `path`, `hosts` and `methods`, or with `domain`, `entries` and `subset`"
                    .to_owned()
            }
            "hosts" => "a list of hosts, as in `[\"api.example.com\"]`".to_owned(),
            "subset" => "`true` or `false`".to_owned(),
            "domain" => "the domain of descriptors".to_owned(),
            "entries" => "a list of entries, as in `[\"generic_key=login\", \"remote_address\"]`".to_owned(),
            "path" => "a path that starts with `/`, with `*` for a segment".to_owned(),
            "methods" => "a list of methods, as in `[\"POST\"]`".to_owned(),
            "key" => "a list of who pays, as in `[\"tenant\", \"ip\"]`".to_owned(),
            "plans" => {
                "a list of plan names, one of them, `\"tenant\"`, `\"unlimited\"` or `\"banned\"`".to_owned()
            }
            "anonymousPlan" => "the name of a plan".to_owned(),
            "cost" => format!("a whole number of tokens from 0 to {}", Limit::MAX_TOKENS),
            "mode" => "`enforce` or `shadow`".to_owned(),
            "onFailure" => "`allow`, `deny` or `local`".to_owned(),
            "also" => "a list of ids of other rules".to_owned(),
            _ => return None,
        })
    }
}

/// A rule as it is in force.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "id": "login", "match": {"path": "/login", "methods": ["POST"]}, "key": ["ip"], "plans": ["free"], "cost": 1,
    "mode": "enforce", "onFailure": "deny", "source": "file"
})))]
pub(crate) struct RuleEntry {
    /// What it is called.
    pub(super) id: String,
    /// Which requests it is for; all, where it is not there.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    matches: Option<MatchDocument>,
    /// Who pays, the first that is found. A descriptor pays for itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    key: Vec<String>,
    /// The plans, or `tenant` for the plan of whoever asks.
    plans: Plans,
    /// The plan of callers who are no tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    anonymous_plan: Option<String>,
    /// Tokens that a request spends.
    cost: u32,
    /// Whether it blocks.
    mode: Mode,
    /// What happens when the store fails, where the rule has a say of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    on_failure: Option<OnFailure>,
    /// Ids of rules that are charged with this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    also: Vec<String>,
    /// Where it comes from.
    source: Source,
}

impl RuleEntry {
    pub(super) fn new(rule: &Rule, source: impl Fn(&str) -> Source) -> Self {
        let (plans, anonymous) = match &rule.plans {
            RulePlans::Listed(plans) => {
                (Plans::Listed(plans.iter().map(PlanName::to_string).collect()), None)
            }
            RulePlans::Tenant { anonymous } => (Plans::Word("tenant".to_owned()), anonymous.as_ref()),
            RulePlans::Unlimited => (Plans::Word("unlimited".to_owned()), None),
            RulePlans::Banned => (Plans::Word("banned".to_owned()), None),
        };
        Self {
            id: rule.id.to_string(),
            matches: shown_match(rule),
            key: if rule.matcher.descriptor.is_some() { Vec::new() } else { rule.key.words().to_vec() },
            plans,
            anonymous_plan: anonymous.map(PlanName::to_string),
            cost: rule.cost.get(),
            mode: if rule.shadow { Mode::Shadow } else { Mode::Enforce },
            on_failure: rule.on_failure.map(OnFailure::from),
            also: rule.also.iter().map(ToString::to_string).collect(),
            source: source(&rule.id),
        }
    }
}

fn shown_match(rule: &Rule) -> Option<MatchDocument> {
    let path = rule.matcher.path.as_ref().map(ToString::to_string);
    let hosts: Vec<String> = rule.matcher.hosts.iter().map(HostPattern::to_string).collect();
    let methods: Vec<String> = rule.matcher.methods.iter().map(ToString::to_string).collect();
    let [hosts, methods] = [hosts, methods].map(|list| Some(list).filter(|list| !list.is_empty()));
    let descriptor = rule.matcher.descriptor.as_ref();
    let domain = descriptor.map(|descriptor| descriptor.domain.clone());
    let entries = descriptor.map(|descriptor| descriptor.entries.iter().map(ToString::to_string).collect());
    let subset = descriptor.and_then(|descriptor| descriptor.subset.then_some(true));
    let says = !rule.matcher.is_for_all();
    says.then_some(MatchDocument { path, hosts, methods, domain, entries, subset })
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
