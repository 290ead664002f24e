//! Plans, rules and tenants as JSON: as operators send them, and as the admin API shows them.
//!
//! What is sent holds what was typed; whether it goes together is for the configuration to say. It may carry what
//! the server adds when it shows an entry, so that what was read can be sent back.

mod plan;
mod rule;
mod tenant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use spile_core::Plan;
use spile_policy::{Rule, Tenant};
use utoipa::ToSchema;

pub(crate) use self::plan::{PlanDocument, PlanEntry};
pub(crate) use self::rule::{RuleDocument, RuleEntry};
pub(crate) use self::tenant::{TenantDocument, TenantEntry, own_limits};
use crate::config::Config;
use crate::control::Entry;
use crate::fault::Fault;
use crate::hex::Hex;
use crate::registry::{Entries, Kind, Which};
use crate::typed::Bounds;

/// What can be put under a name.
pub(crate) trait Document: Bounds + Serialize + for<'de> Deserialize<'de> + Send + 'static {
    const KIND: Kind;
    /// The member that says what it is called.
    const NAME: &str;

    /// What it says it is called, if it does.
    fn name(&self) -> Option<&str>;

    /// What of it is kept, without what the server adds, unless it is called otherwise than where it is put.
    fn kept_as(&self, name: &str) -> Result<Map<String, Value>, Fault> {
        if self.name().is_some_and(|own| own != name) {
            return Err(Fault::new(
                Self::NAME,
                "is not the name in the path; leave it out, or write that one",
            ));
        }
        match serde_json::to_value(self) {
            Ok(Value::Object(mut members)) => {
                for added in [Self::NAME, "source", "apiKeyCount"] {
                    members.remove(added);
                }
                Ok(members)
            }
            _ => Err(Fault::new("body", "is no object")),
        }
    }
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The configuration file, or what holds without one.
    File,
    /// The registry: it was put while a server ran.
    Registry,
}

/// Every entry of a kind that is in force.
pub(crate) fn all(config: &Config, kind: Kind) -> Vec<Entry> {
    let source = source_in(config.entries(), kind);
    match kind {
        Kind::Plans => config.plans.iter().map(|plan| plan_entry(plan, source)).collect(),
        Kind::Rules => config.rules.iter().map(|rule| rule_entry(rule, source)).collect(),
        Kind::Tenants => config.tenants.iter().map(|tenant| tenant_entry(tenant, source)).collect(),
    }
}

/// One entry that is in force. Only that one is written out: there may be a hundred thousand others.
pub(crate) fn one(config: &Config, which: &Which) -> Option<Entry> {
    let (name, source) = (which.name.as_str(), source_in(config.entries(), which.kind));
    match which.kind {
        Kind::Plans => {
            let plan = config.plans.iter().find(|plan| plan.name().as_str() == name);
            plan.map(|plan| plan_entry(plan, source))
        }
        Kind::Rules => config.rules.iter().find(|rule| rule.id == name).map(|rule| rule_entry(rule, source)),
        Kind::Tenants => {
            let tenant = config.tenants.iter().find(|tenant| tenant.id == name);
            tenant.map(|tenant| tenant_entry(tenant, source))
        }
    }
}

fn source_in(entries: &Entries, kind: Kind) -> impl Fn(&str) -> Source + Copy {
    move |name| match entries.get(kind, name) {
        Some(_) => Source::Registry,
        None => Source::File,
    }
}

fn plan_entry(plan: &Plan, source: impl Fn(&str) -> Source) -> Entry {
    entry_of(&PlanEntry::new(plan, source), "")
}

fn rule_entry(rule: &Rule, source: impl Fn(&str) -> Source) -> Entry {
    entry_of(&RuleEntry::new(rule, source), "")
}

fn tenant_entry(tenant: &Tenant, source: impl Fn(&str) -> Source) -> Entry {
    entry_of(&TenantEntry::new(tenant, source), &tenant::unseen(tenant))
}

/// The tag changes whenever anything about the entry does, also what is not shown.
fn entry_of(shown: &impl Serialize, unseen: &str) -> Entry {
    let document = serde_json::to_value(shown).unwrap_or_default();
    let hash = Sha256::new().chain_update(document.to_string()).chain_update(unseen).finalize();
    Entry { document, tag: Hex(&hash[..8]).to_string() }
}
