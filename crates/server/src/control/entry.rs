//! Plans, rules and tenants that are in force, as the admin API shows them.

use serde_json::Value;
use sha2::{Digest, Sha256};
use spile_core::Plan;
use spile_policy::{Rule, Tenant};

use crate::config::{Config, PlanSpec, RuleSpec, Source, Spec, TenantSpec};
use crate::registry::{EntryId, Kind};

/// An entry as it is in force.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) document: Value,
    /// Changes whenever any part of the entry does, including its API keys, which are not shown.
    pub(crate) tag: String,
}

impl Entry {
    /// Every entry of a kind.
    pub(super) fn all(config: &Config, kind: Kind) -> Vec<Self> {
        match kind {
            Kind::Plans => config.plans.iter().map(|plan| Self::plan(config, plan)).collect(),
            Kind::Rules => config.rules.iter().map(|rule| Self::rule(config, rule)).collect(),
            Kind::Tenants => config.tenants.iter().map(|tenant| Self::tenant(config, tenant)).collect(),
        }
    }

    /// One entry. Only that one is serialized, because there may be a hundred thousand others.
    pub(super) fn one(config: &Config, EntryId { kind, name }: &EntryId) -> Option<Self> {
        match kind {
            Kind::Plans => {
                let plan = config.plans.iter().find(|plan| plan.name().as_str() == name);
                plan.map(|plan| Self::plan(config, plan))
            }
            Kind::Rules => {
                config.rules.iter().find(|rule| rule.id == *name).map(|rule| Self::rule(config, rule))
            }
            Kind::Tenants => {
                let tenant = config.tenants.iter().find(|tenant| tenant.id == *name);
                tenant.map(|tenant| Self::tenant(config, tenant))
            }
        }
    }

    fn plan(config: &Config, plan: &Plan) -> Self {
        Self::new(config, Kind::Plans, plan.name().as_str(), Spec::Plan(PlanSpec::from(plan)), "")
    }

    fn rule(config: &Config, rule: &Rule) -> Self {
        Self::new(config, Kind::Rules, &rule.id, Spec::Rule(RuleSpec::from(rule)), "")
    }

    fn tenant(config: &Config, tenant: &Tenant) -> Self {
        let api_key_count = Some(tenant.api_keys.len() as u64);
        let keys: String = tenant.api_keys.iter().map(ToString::to_string).collect();
        let spec = TenantSpec { api_key_count, ..TenantSpec::from(tenant) };
        Self::new(config, Kind::Tenants, &tenant.id, Spec::Tenant(spec), &keys)
    }

    fn new(config: &Config, kind: Kind, name: &str, spec: Spec, unseen: &str) -> Self {
        let is_kept = config.entries().get(kind, name).is_some();
        let document = spec.shown(if is_kept { Source::Registry } else { Source::File });
        let hash = Sha256::new().chain_update(document.to_string()).chain_update(unseen).finalize();
        Self { document, tag: hex::encode(&hash[..8]) }
    }
}
