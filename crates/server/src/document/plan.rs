//! Plans as JSON.

use serde::{Deserialize, Serialize};
use spile_core::{Charges, Limit, Plan};
use utoipa::ToSchema;

use super::{Document, Source};
use crate::config::refill;
use crate::registry::Kind;
use crate::typed::{Bounds, Object, Whole};

/// A plan as it is sent: one limit, or a chain of them of which all must allow.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
#[schema(examples(json!({"capacity": 100, "refill": "50/s"})))]
pub(crate) struct PlanDocument {
    /// As it was read: the name in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    name: Option<String>,
    /// As it was read.
    #[serde(rename = "source", skip_serializing_if = "Option::is_none")]
    _source: Option<Source>,
    /// The most tokens that can be spent at once. Where it is left out, as many as come back in a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000_000)]
    capacity: Option<Whole>,
    /// Tokens per period: `1/s`, `100/min`, `5/10s`, `10000/day`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "refill", examples("50/s"))]
    refill: Option<String>,
    /// A chain, in place of `capacity` and `refill`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<LimitDocument>>, min_items = 1, max_items = 32)]
    limits: Option<Vec<Object<LimitDocument>>>,
}

/// One limit of a chain.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
struct LimitDocument {
    /// What it is called within its plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 64)]
    #[schema(pattern = "^[A-Za-z0-9._-]+$", examples("burst"))]
    name: Option<String>,
    /// The most tokens that can be spent at once. Where it is left out, as many as come back in a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000_000)]
    capacity: Option<Whole>,
    /// Tokens per period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = true, nullable = false, format = "refill", examples("50/s"))]
    refill: Option<String>,
}

impl Document for PlanDocument {
    const KIND: Kind = Kind::Plans;
    const NAME: &str = "name";

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Bounds for PlanDocument {
    fn bound_of(field: &str) -> Option<String> {
        Some(match field {
            "name" => "1 to 64 letters, digits, `.`, `_` or `-`".to_owned(),
            "source" => "`file` or `registry`, and may be left out".to_owned(),
            "capacity" => format!("a whole number of tokens from 1 to {}", Limit::MAX_TOKENS),
            "refill" => "text: tokens per period, as in `1/s` or `100/min`".to_owned(),
            "limits" => {
                format!("a list of 1 to {} limits, each with `name`, `capacity` and `refill`", Charges::MAX)
            }
            _ => return None,
        })
    }
}

/// A plan as it is in force.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"name": "pro", "capacity": 100, "refill": "50/s", "source": "file"})))]
pub(crate) struct PlanEntry {
    /// What it is called.
    pub(super) name: String,
    /// The most tokens that can be spent at once. Not there where the plan is a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    capacity: Option<u32>,
    /// Tokens per period. Not there where the plan is a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    refill: Option<String>,
    /// The chain, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limits: Option<Vec<LimitEntry>>,
    /// Where it comes from.
    source: Source,
}

/// One limit of a chain.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct LimitEntry {
    /// What it is called within its plan.
    name: String,
    /// The most tokens that can be spent at once.
    capacity: u32,
    /// Tokens per period.
    refill: String,
}

impl PlanEntry {
    pub(super) fn new(plan: &Plan, source: impl Fn(&str) -> Source) -> Self {
        let name = plan.name().to_string();
        let source = source(&name);
        match plan.limits() {
            [only] if only.name().as_str() == name => {
                let (capacity, refill) = parts(only.limit());
                Self { name, capacity: Some(capacity), refill: Some(refill), limits: None, source }
            }
            limits => {
                let limits = limits.iter().map(|limit| {
                    let own = limit.own_name().to_owned();
                    let (capacity, refill) = parts(limit.limit());
                    LimitEntry { name: own, capacity, refill }
                });
                Self { name, capacity: None, refill: None, limits: Some(limits.collect()), source }
            }
        }
    }
}

/// Capacity and refill, as they are written apart.
fn parts(limit: &Limit) -> (u32, String) {
    (limit.capacity(), refill(limit))
}
