//! What the dashboard asks of whoever serves: plans, tenants and buckets.

use std::pin::Pin;

use serde::{Deserialize, Serialize};
use spile_core::{Decision, MicroTokens, Plan};

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever knows the plans and tenants, and can look at buckets.
pub trait House: Send + Sync + 'static {
    /// Every plan, in the order that they are to be shown.
    fn plans(&self) -> Vec<PlanView>;

    /// Every tenant, in the order that they are to be shown.
    fn tenants(&self) -> Vec<TenantView>;

    /// What an operator should look into, in a sentence; `None` if all is well.
    fn warning(&self) -> Option<String> {
        None
    }

    /// What a key is called in the lists of the dashboard. Empty if it is not a key.
    fn mask(&self, key: &str) -> String;

    /// The buckets of a key under one plan, or under each. Spends nothing.
    fn look(&self, key: String, plan: Option<String>) -> Later<'_, Result<Vec<BucketView>, NotSeen>>;
}

/// Why buckets were not seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotSeen {
    /// The question makes no sense.
    Asked {
        /// What of it: `key` or `plan`.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// The store does not answer.
    Store,
}

/// A plan as it is shown.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
pub struct PlanView {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: Vec<LimitView>,
}

/// A limit as it is shown.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
pub struct LimitView {
    /// Its full name.
    pub name: String,
    /// Its capacity and refill: `10, 1/s`.
    pub shape: String,
}

/// A tenant as it is shown: no API keys.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
pub struct TenantView {
    /// Its id.
    pub id: String,
    /// The plan that it holds.
    pub plan: String,
}

/// A bucket as it is shown.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketView {
    /// The limit's full name.
    pub limit: String,
    /// The limit's capacity and refill.
    pub shape: String,
    /// The most tokens that it holds.
    pub capacity: u32,
    /// Tokens that it holds now, with their fraction.
    pub available: f64,
    /// How full it is, from 0 to 1.
    pub level: f64,
    /// Tokens that come back per second.
    pub rate_per_second: f64,
}

impl From<&Plan> for PlanView {
    fn from(plan: &Plan) -> Self {
        let view = |limit: &spile_core::NamedLimit| LimitView {
            name: limit.name().to_string(),
            shape: limit.limit().to_string(),
        };
        Self { name: plan.name().to_string(), limits: plan.limits().iter().map(view).collect() }
    }
}

impl BucketView {
    /// The buckets that a decision saw.
    pub fn of(decision: &Decision) -> Vec<Self> {
        let view = |status: &spile_core::LimitStatus| {
            let (limit, level) = (status.limit(), status.level());
            let capacity = limit.capacity_micro().get() as f64 / MicroTokens::PER_TOKEN as f64;
            Self {
                limit: status.name().to_string(),
                shape: limit.to_string(),
                capacity: limit.capacity(),
                available: level * capacity,
                level,
                rate_per_second: limit.rate(),
            }
        };
        decision.limits().iter().map(view).collect()
    }
}
