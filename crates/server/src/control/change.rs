//! A change that an operator requests, evaluated against the configuration that is in force when its turn comes.

use std::sync::Arc;

use spile_policy::{ApiKeyHash, Tenant};

use super::{ControlError, Entry};
use crate::config::{Config, Spec, TenantSpec};
use crate::registry::{EntryId, Registry};

/// The most API keys that a tenant can be given one by one.
const MOST_KEYS: usize = 100;

/// The requested change.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Creates or replaces the entry.
    Put(Arc<Spec>),
    /// Adds an API key to an existing tenant.
    AddKey(ApiKeyHash),
    /// Removes the registry's entry. The file's entry of that name is in force again.
    Delete,
}

/// The precondition of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    /// No precondition.
    Always,
    /// The entry exists.
    Present,
    /// The entry exists and has one of these tags: it has not changed since.
    Unchanged(Vec<String>),
    /// The entry does not exist.
    Absent,
}

impl Change {
    /// The verb in the log.
    pub(super) const fn action(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::AddKey(_) => "add key",
            Self::Delete => "delete",
        }
    }

    /// The entry that the registry is to hold, or `None` if it is removed. `config` is the configuration in force.
    pub(super) fn spec(
        &self,
        which: &EntryId,
        config: &Config,
        registry: &Registry,
    ) -> Result<Option<Arc<Spec>>, ControlError> {
        match self {
            Self::Put(spec) => Ok(Some(with_keys(which, config, registry, spec))),
            Self::AddKey(key) => {
                if let Some(why) = config.quarantine().why(which) {
                    return Err(ControlError::Quarantined(why.to_owned()));
                }
                let tenant = tenant(config, &which.name).ok_or(ControlError::Missing)?;
                if tenant.api_keys.len() >= MOST_KEYS {
                    return Err(ControlError::TooManyKeys(tenant.api_keys.len()));
                }
                let mut api_keys = hashes(tenant);
                api_keys.push(key.to_string());
                let spec = TenantSpec { id: None, api_keys: Some(api_keys), ..TenantSpec::from(tenant) };
                Ok(Some(Arc::new(Spec::Tenant(spec))))
            }
            Self::Delete if registry.holds(which) => Ok(None),
            Self::Delete => Err(match Entry::one(config, which) {
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

/// Keeps the keys of a tenant unless the new entry lists keys: they are never shown, so a client cannot send them back. A tenant in
/// quarantine keeps those of its entry.
fn with_keys(which: &EntryId, config: &Config, registry: &Registry, spec: &Arc<Spec>) -> Arc<Spec> {
    let Spec::Tenant(tenant_spec @ TenantSpec { api_keys: None, .. }) = &**spec else {
        return Arc::clone(spec);
    };
    let api_keys = match config.quarantine().why(which) {
        Some(_) => registry.entries().get(which.kind, &which.name).and_then(|entry| match &**entry {
            Spec::Tenant(tenant) => tenant.api_keys.clone(),
            Spec::Plan(_) | Spec::Rule(_) => None,
        }),
        None => tenant(config, &which.name).map(hashes),
    };
    Arc::new(Spec::Tenant(TenantSpec { api_keys, ..tenant_spec.clone() }))
}

fn hashes(tenant: &Tenant) -> Vec<String> {
    tenant.api_keys.iter().map(ToString::to_string).collect()
}

fn tenant<'c>(config: &'c Config, id: &str) -> Option<&'c Tenant> {
    config.tenants.iter().find(|tenant| tenant.id == id)
}
