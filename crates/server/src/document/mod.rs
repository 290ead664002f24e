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
use utoipa::ToSchema;

pub(crate) use self::plan::{PlanDocument, PlanEntry};
pub(crate) use self::rule::{RuleDocument, RuleEntry};
pub(crate) use self::tenant::{TenantDocument, TenantEntry};
use crate::config::Config;
use crate::control::Entry;
use crate::fault::Fault;
use crate::hex::Hex;
use crate::registry::{Entries, Kind};
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

/// Every entry of a kind that is in force, with its name.
pub(crate) fn all(config: &Config, entries: &Entries, kind: Kind) -> Vec<(String, Entry)> {
    let source = |name: &str| match entries.get(kind, name) {
        Some(_) => Source::Registry,
        None => Source::File,
    };
    match kind {
        Kind::Plans => {
            let entry = |plan| PlanEntry::new(plan, source);
            config.plans.iter().map(entry).map(|shown| entry_of(shown.name.clone(), &shown, "")).collect()
        }
        Kind::Rules => {
            let entry = |rule| RuleEntry::new(rule, source);
            config.rules.iter().map(entry).map(|shown| entry_of(shown.id.clone(), &shown, "")).collect()
        }
        Kind::Tenants => {
            let entry = |tenant| {
                let shown = TenantEntry::new(tenant, source);
                entry_of(shown.id.clone(), &shown, &tenant::unseen(tenant))
            };
            config.tenants.iter().map(entry).collect()
        }
    }
}

/// The tag changes whenever anything about the entry does, also what is not shown.
fn entry_of(name: String, shown: &impl Serialize, unseen: &str) -> (String, Entry) {
    let document = serde_json::to_value(shown).unwrap_or_default();
    let hash = Sha256::new().chain_update(document.to_string()).chain_update(unseen).finalize();
    (name, Entry { document, tag: Hex(&hash[..8]).to_string() })
}
