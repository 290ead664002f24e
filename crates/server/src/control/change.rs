//! A change that somebody asks for, worked out against what is in force when its turn comes.

use serde_json::{Map, Value, json};
use spile_policy::{ApiKeyHash, Tenant};

use super::ControlError;
use crate::config::Config;
use crate::document;
use crate::registry::{Kind, Registry, Which};

const API_KEYS: &str = "apiKeys";
/// The most API keys that a tenant can be given one by one.
const MOST_KEYS: usize = 100;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// This document in place of whatever has the name.
    Put(Map<String, Value>),
    /// One more API key for a tenant that is there.
    AddKey(ApiKeyHash),
    /// The registry's entry goes. What the file says about the name holds again.
    Delete,
}

/// What must be true of an entry for it to be changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    /// Nothing.
    Always,
    /// It is there.
    Present,
    /// It is there, and its tag is one of these: nobody has changed it since.
    Unchanged(Vec<String>),
    /// It is not there.
    Absent,
}

/// An entry as it is in force.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) document: Value,
    pub(crate) tag: String,
}

impl Change {
    /// What the log calls it.
    pub(super) const fn action(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::AddKey(_) => "add key",
            Self::Delete => "delete",
        }
    }

    /// The document that the registry is to hold, or nothing where it is to hold none. `config` is what is in force.
    pub(super) fn document(
        &self,
        which: &Which,
        config: &Config,
        registry: &Registry,
    ) -> Result<Option<Value>, ControlError> {
        match self {
            Self::Put(document) => {
                Ok(Some(Value::Object(with_keys(which, config, registry, document.clone()))))
            }
            Self::AddKey(key) => {
                if let Some(why) = config.quarantine().why(which) {
                    return Err(ControlError::Quarantined(why.to_owned()));
                }
                let tenant = tenant(config, &which.name).ok_or(ControlError::Missing)?;
                if tenant.api_keys.len() >= MOST_KEYS {
                    return Err(ControlError::TooManyKeys(tenant.api_keys.len()));
                }
                let keys = tenant.api_keys.iter().chain([key]).map(ToString::to_string);
                let keys: Vec<String> = keys.collect();
                let limits = document::own_limits(tenant);
                Ok(Some(json!({"plan": tenant.plan.as_str(), "apiKeys": keys, "limits": limits})))
            }
            Self::Delete if registry.holds(which) => Ok(None),
            Self::Delete => Err(match document::one(config, which) {
                Some(_) => ControlError::InFile,
                None => ControlError::Missing,
            }),
        }
    }
}

impl Condition {
    pub(super) fn check(&self, standing: Option<&Entry>) -> Result<(), ControlError> {
        match (self, standing) {
            (Self::Always, _) | (Self::Absent, None) | (Self::Present, Some(_)) => Ok(()),
            (Self::Unchanged(tags), Some(entry)) if tags.contains(&entry.tag) => Ok(()),
            _ => Err(ControlError::Changed),
        }
    }
}

/// A tenant keeps its keys unless the document speaks of them: they are not shown, and so cannot be sent back. One in
/// quarantine keeps those of its entry.
fn with_keys(
    which: &Which,
    config: &Config,
    registry: &Registry,
    mut document: Map<String, Value>,
) -> Map<String, Value> {
    if which.kind != Kind::Tenants || document.contains_key(API_KEYS) {
        return document;
    }
    let kept = match config.quarantine().why(which) {
        Some(_) => {
            registry.entries().get(which.kind, &which.name).and_then(|entry| entry.get(API_KEYS)).cloned()
        }
        None => tenant(config, &which.name)
            .map(|tenant| json!(tenant.api_keys.iter().map(ToString::to_string).collect::<Vec<_>>())),
    };
    document.extend(kept.map(|kept| (API_KEYS.to_owned(), kept)));
    document
}

fn tenant<'c>(config: &'c Config, id: &str) -> Option<&'c Tenant> {
    config.tenants.iter().find(|tenant| tenant.id == id)
}
