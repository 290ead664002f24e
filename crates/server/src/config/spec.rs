//! What the registry holds and the admin API takes and shows: a plan, a rule or a tenant as it is written.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::plan::PlanSpec;
use super::rule::RuleSpec;
use super::source::{At, Faults, Node, read_json};
use super::tenant::TenantSpec;
use crate::registry::{Kind, Which};

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The configuration file, or what holds without one.
    File,
    /// The registry: it was put while a server ran.
    Registry,
}

/// A plan, a rule or a tenant as it is written. Whether it works is for the configuration to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Spec {
    Plan(PlanSpec),
    Rule(RuleSpec),
    Tenant(TenantSpec),
}

impl Spec {
    /// Reads what was sent or kept under this name, and takes out what the server adds when it shows an entry: what was read
    /// can be sent back. Also returns the name that it says it has. `None` if there are faults.
    pub(crate) fn read(
        which: &Which,
        node: &Node<'_>,
        faults: &mut Faults,
    ) -> Option<(Option<String>, Self)> {
        let (at, before) = (At::entry(which.kind, &which.name), faults.added());
        let mut spec = match which.kind {
            Kind::Plans => Self::Plan(read_json(node, at, faults)?),
            Kind::Rules => Self::Rule(read_json(node, at, faults)?),
            Kind::Tenants => Self::Tenant(read_json(node, at, faults)?),
        };
        let name = spec.name_mut().take();
        *spec.source_mut() = None;
        if let Self::Tenant(tenant) = &mut spec {
            tenant.api_key_count = None;
        }
        (faults.added() == before).then_some((name, spec))
    }

    /// Reads the JSON that a registry keeps under this name, or says why it cannot be read.
    pub(crate) fn read_text(which: &Which, text: &[u8]) -> Result<Self, String> {
        let node = serde_json::from_slice(text).map_err(|why| format!("{which} is no JSON: {why}"))?;
        let mut faults = Faults::sparing_entries();
        match Self::read(which, &node, &mut faults) {
            Some((_, spec)) => Ok(spec),
            None => Err(faults.take_quarantine().why(which).unwrap_or_default().to_owned()),
        }
    }

    /// The same as the admin API shows it.
    pub(crate) fn shown(mut self, source: Source) -> Value {
        *self.source_mut() = Some(source);
        self.to_json()
    }

    /// Without the members that it leaves out.
    pub(crate) fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        drop_nulls(&mut value);
        value
    }

    fn name_mut(&mut self) -> &mut Option<String> {
        match self {
            Self::Plan(plan) => &mut plan.name,
            Self::Rule(rule) => &mut rule.id,
            Self::Tenant(tenant) => &mut tenant.id,
        }
    }

    fn source_mut(&mut self) -> &mut Option<Source> {
        match self {
            Self::Plan(plan) => &mut plan.source,
            Self::Rule(rule) => &mut rule.source,
            Self::Tenant(tenant) => &mut tenant.source,
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// One of the types that a [`Spec`] may be.
pub(super) trait OfKind {
    const KIND: Kind;

    fn of(spec: &Spec) -> Option<&Self>;

    /// What it says it is called.
    fn name(&self) -> Option<&str>;
}

impl OfKind for PlanSpec {
    const KIND: Kind = Kind::Plans;

    fn of(spec: &Spec) -> Option<&Self> {
        if let Spec::Plan(plan) = spec { Some(plan) } else { None }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl OfKind for RuleSpec {
    const KIND: Kind = Kind::Rules;

    fn of(spec: &Spec) -> Option<&Self> {
        if let Spec::Rule(rule) = spec { Some(rule) } else { None }
    }

    fn name(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl OfKind for TenantSpec {
    const KIND: Kind = Kind::Tenants;

    fn of(spec: &Spec) -> Option<&Self> {
        if let Spec::Tenant(tenant) = spec { Some(tenant) } else { None }
    }

    fn name(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
