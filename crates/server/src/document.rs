//! Plans, rules and tenants as JSON, as the admin API shows them.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use spile_core::{Limit, Plan, PlanName};

use crate::config::Config;
use crate::control::Entry;
use crate::hex::Hex;
use crate::registry::{Entries, Kind};
use crate::rule::{Rule, RulePlans};
use crate::tenant::Tenant;

/// Every entry of a kind that is in force, with its name.
pub(crate) fn all(config: &Config, entries: &Entries, kind: Kind) -> Vec<(String, Entry)> {
    let documents: Vec<(String, Map<String, Value>, String)> = match kind {
        Kind::Plans => {
            config.plans.iter().map(|plan| (plan.name().to_string(), of_plan(plan), String::new())).collect()
        }
        Kind::Rules => {
            config.rules.iter().map(|rule| (rule.id.to_string(), of_rule(rule), String::new())).collect()
        }
        Kind::Tenants => {
            let entry = |tenant: &Tenant| (tenant.id.to_string(), of_tenant(tenant), unseen(tenant));
            config.tenants.iter().map(entry).collect()
        }
    };
    let finish = |(name, mut document, unseen): (String, Map<String, Value>, String)| {
        let source = if entries.get(kind, &name).is_some() { "registry" } else { "file" };
        document.insert("source".to_owned(), json!(source));
        let document = Value::Object(document);
        let tag = tag(&document, &unseen);
        (name, Entry { document, tag })
    };
    documents.into_iter().map(finish).collect()
}

/// Changes whenever anything about the entry does, also what is not shown.
fn tag(document: &Value, unseen: &str) -> String {
    let hash = Sha256::new().chain_update(document.to_string()).chain_update(unseen).finalize();
    Hex(&hash[..8]).to_string()
}

fn unseen(tenant: &Tenant) -> String {
    tenant.api_keys.iter().map(ToString::to_string).collect()
}

fn of_plan(plan: &Plan) -> Map<String, Value> {
    let limit = |limit: &Limit| {
        let text = limit.to_string();
        let refill = text.split_once(", ").map_or(text.as_str(), |(_, refill)| refill).to_owned();
        json!({"capacity": limit.capacity(), "refill": refill})
    };
    let mut document = object(json!({"name": plan.name().as_str()}));
    match plan.limits() {
        [only] if only.name().as_str() == plan.name().as_str() => {
            document.append(&mut object(limit(only.limit())));
        }
        limits => {
            let named = limits.iter().map(|named| {
                let own = named.name().as_str().rsplit('/').next().unwrap_or_default();
                let mut document = object(json!({"name": own}));
                document.append(&mut object(limit(named.limit())));
                Value::Object(document)
            });
            document.insert("limits".to_owned(), named.collect());
        }
    }
    document
}

fn of_rule(rule: &Rule) -> Map<String, Value> {
    let mut document = object(json!({
        "id": rule.id.as_str(),
        "key": rule.key.words(),
        "cost": rule.cost.get(),
        "mode": if rule.shadow { "shadow" } else { "enforce" },
    }));
    let mut matches = Map::new();
    if let Some(path) = &rule.matcher.path {
        matches.insert("path".to_owned(), json!(path.to_string()));
    }
    if !rule.matcher.methods.is_empty() {
        let methods: Vec<&str> = rule.matcher.methods.iter().map(http::Method::as_str).collect();
        matches.insert("methods".to_owned(), json!(methods));
    }
    if !matches.is_empty() {
        document.insert("match".to_owned(), Value::Object(matches));
    }
    match &rule.plans {
        RulePlans::Listed(plans) => {
            let names: Vec<&str> = plans.iter().map(PlanName::as_str).collect();
            document.insert("plans".to_owned(), json!(names));
        }
        RulePlans::Tenant { anonymous } => {
            document.insert("plans".to_owned(), json!("tenant"));
            if let Some(plan) = anonymous {
                document.insert("anonymousPlan".to_owned(), json!(plan.as_str()));
            }
        }
    }
    if let Some(policy) = rule.on_failure {
        document.insert("onFailure".to_owned(), json!(policy.to_string()));
    }
    if !rule.also.is_empty() {
        let also: Vec<&str> = rule.also.iter().map(smol_str::SmolStr::as_str).collect();
        document.insert("also".to_owned(), json!(also));
    }
    document
}

/// How many keys a tenant has is shown; what they hash to is not.
fn of_tenant(tenant: &Tenant) -> Map<String, Value> {
    let (id, plan) = (tenant.id.as_str(), tenant.plan.as_str());
    object(json!({"id": id, "plan": plan, "apiKeyCount": tenant.api_keys.len()}))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
