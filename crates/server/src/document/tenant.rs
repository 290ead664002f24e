//! Tenants as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spile_core::{Key, Limit};
use spile_policy::Tenant;
use utoipa::ToSchema;

use super::{Document, Source};
use crate::config::refill;
use crate::registry::Kind;
use crate::typed::{Bounds, Object, Whole};

/// A tenant as it is sent: a customer with a plan and API keys.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
#[schema(examples(json!({"plan": "pro"})))]
pub(crate) struct TenantDocument {
    /// As it was read: the name in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1024)]
    id: Option<String>,
    /// As it was read.
    #[serde(rename = "source", skip_serializing_if = "Option::is_none")]
    _source: Option<Source>,
    /// As it was read.
    #[serde(rename = "apiKeyCount", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    _api_key_count: Option<Whole>,
    /// The plan that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = true, nullable = false, format = "plan-name", examples("pro"))]
    plan: Option<String>,
    /// Hashes of its API keys: `sha256:` and 64 hexadecimal digits. Where they are left out, those it has stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_keys: Option<Vec<String>>,
    /// Limits of its own, each in place of the one that its plan has under that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, OwnLimit>>)]
    limits: Option<BTreeMap<String, Object<OwnLimit>>>,
}

/// A limit that a tenant has in place of its plan's.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub(crate) struct OwnLimit {
    /// The most tokens that can be spent at once. Where it is left out, as many as come back in a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000_000)]
    capacity: Option<Whole>,
    /// Tokens per period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = true, nullable = false, format = "refill", examples("200/s"))]
    refill: Option<String>,
}

impl Document for TenantDocument {
    const KIND: Kind = Kind::Tenants;
    const NAME: &str = "id";

    fn name(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl Bounds for TenantDocument {
    fn bound_of(field: &str) -> Option<String> {
        Some(match field {
            "id" => format!("1 to {} bytes of text without control characters", Key::MAX_BYTES),
            "source" => "`file` or `registry`, and may be left out".to_owned(),
            "apiKeyCount" => "a whole number, and may be left out".to_owned(),
            "plan" => "the name of a plan".to_owned(),
            "limits" => {
                "limits by the names that they have in its plan, each with `capacity` and `refill`".to_owned()
            }
            "capacity" => format!("a whole number of tokens from 1 to {}", Limit::MAX_TOKENS),
            "refill" => "text: tokens per period, as in `1/s` or `100/min`".to_owned(),
            "apiKeys" => "a list of hashes: `sha256:` and 64 hexadecimal digits each".to_owned(),
            _ => return None,
        })
    }
}

/// A tenant as it is in force. How many keys it has is shown; what they hash to is not.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"id": "acme", "plan": "pro", "apiKeyCount": 1, "source": "registry"})))]
pub(crate) struct TenantEntry {
    /// What it is called.
    pub(super) id: String,
    /// The plan that it holds.
    plan: String,
    /// How many API keys it has.
    api_key_count: usize,
    /// Limits of its own, by the names that they have in its plan.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    limits: BTreeMap<String, OwnLimit>,
    /// Where it comes from.
    source: Source,
}

impl TenantEntry {
    pub(super) fn new(tenant: &Tenant, source: impl Fn(&str) -> Source) -> Self {
        let (id, plan) = (tenant.id.to_string(), tenant.plan.to_string());
        let source = source(&id);
        Self { id, plan, api_key_count: tenant.api_keys.len(), limits: own_limits(tenant), source }
    }
}

/// A tenant's own limits, as they are sent.
pub(crate) fn own_limits(tenant: &Tenant) -> BTreeMap<String, OwnLimit> {
    let written = |limit: &spile_core::NamedLimit| {
        let capacity = Some(Whole(limit.limit().capacity().into()));
        (limit.own_name().to_owned(), OwnLimit { capacity, refill: Some(refill(limit.limit())) })
    };
    tenant.own_limits().map(written).collect()
}

/// What about a tenant is not shown, and still makes it another when it changes.
pub(super) fn unseen(tenant: &Tenant) -> String {
    tenant.api_keys.iter().map(ToString::to_string).collect()
}
