//! A plan, a rule or a tenant as it is written, in the registry and in the admin API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::plan::PlanSpec;
use super::rule::RuleSpec;
use super::source::{Faults, Location, read_json};
use super::tenant::TenantSpec;
use crate::registry::{EntryId, Kind};

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The configuration file, or the defaults without one.
    File,
    /// The registry: it was put while a server ran.
    Registry,
}

/// A plan, a rule or a tenant as it is written. The configuration checks whether it is valid.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Spec {
    Plan(PlanSpec),
    Rule(RuleSpec),
    Tenant(TenantSpec),
}

impl Spec {
    /// Reads a document that was sent or stored under this name, and removes the members that the server adds when it shows an entry, so
    /// that a shown entry can be sent back. Also returns the name in the document. `None` if there are faults, and an error if it is not
    /// a JSON object.
    pub(crate) fn read(
        which: &EntryId,
        text: &[u8],
        faults: &mut Faults,
    ) -> Result<Option<(Option<String>, Self)>, String> {
        let at = Location::entry(which.kind, &which.name);
        let spec = match which.kind {
            Kind::Plans => read_json(text, &at, faults)?.map(Self::Plan),
            Kind::Rules => read_json(text, &at, faults)?.map(Self::Rule),
            Kind::Tenants => read_json(text, &at, faults)?.map(Self::Tenant),
        };
        Ok(spec.map(|mut spec| (spec.take_shown(), spec)))
    }

    /// Reads the JSON that a registry stores under this name, or returns why it cannot be read.
    pub(crate) fn read_text(which: &EntryId, text: &[u8]) -> Result<Self, String> {
        let mut faults = Faults::sparing_entries();
        match Self::read(which, text, &mut faults) {
            Ok(Some((_, spec))) => Ok(spec),
            Ok(None) => Err(faults.take_quarantine().why(which).unwrap_or_default().to_owned()),
            Err(why) => Err(format!("{which} is no JSON: {why}")),
        }
    }

    /// The entry as the admin API shows it.
    pub(crate) fn shown(mut self, source: Source) -> Value {
        *self.source_mut() = Some(source);
        self.to_json()
    }

    /// Returns the entry without absent members.
    pub(crate) fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        drop_nulls(&mut value);
        value
    }

    /// Removes the members that the server adds, and returns the name.
    fn take_shown(&mut self) -> Option<String> {
        *self.source_mut() = None;
        match self {
            Self::Plan(plan) => plan.name.take(),
            Self::Rule(rule) => rule.id.take(),
            Self::Tenant(tenant) => {
                tenant.api_key_count = None;
                tenant.id.take()
            }
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

    /// The name that is written in it.
    fn name(&self) -> Option<&str>;
}

macro_rules! of_kind {
    ($($spec:ty: $kind:ident, $variant:ident, $name:ident;)*) => {$(
        impl OfKind for $spec {
            const KIND: Kind = Kind::$kind;

            fn of(spec: &Spec) -> Option<&Self> {
                if let Spec::$variant(spec) = spec { Some(spec) } else { None }
            }

            fn name(&self) -> Option<&str> {
                self.$name.as_deref()
            }
        }
    )*};
}

of_kind! {
    PlanSpec: Plans, Plan, name;
    RuleSpec: Rules, Rule, id;
    TenantSpec: Tenants, Tenant, id;
}
