//! The data that the dashboard needs from the server: plans, rules, tenants and buckets.

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use spile_core::{Decision, Plan, Rate};

/// Provides plans, rules, tenants and the buckets of keys to the dashboard.
pub trait DashboardSource: Send + Sync + 'static {
    /// All plans, in the order in which they are shown.
    fn plans(&self) -> Vec<PlanView>;

    /// All rules, in the order in which they are matched.
    fn rules(&self) -> Vec<RuleView>;

    /// All tenants, in the order in which they are shown.
    fn tenants(&self) -> Vec<TenantView>;

    /// A problem that an operator should look into, in one sentence.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The hash that is shown for this key in the lists of the dashboard. Empty if the text is not a valid key.
    fn mask(&self, key: &str) -> String;

    /// The buckets of a key under one plan, or under every plan if `plan` is `None`. Spends nothing.
    fn peek(&self, key: String, plan: Option<String>) -> BoxFuture<'_, Result<Vec<BucketView>, PeekError>>;
}

/// Why buckets could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PeekError {
    /// The query is invalid.
    Invalid {
        /// The invalid parameter: `key` or `plan`.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// The store does not answer.
    Store,
}

/// A plan, as the dashboard shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
pub struct PlanView {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: Vec<LimitView>,
}

/// A limit, as the dashboard shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
pub struct LimitView {
    /// Its full name.
    pub name: String,
    /// Its capacity and refill: `10, 1/s`.
    pub shape: String,
}

/// A rule, as the dashboard shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleView {
    /// Its id.
    pub id: String,
    /// Its plans, or a word that stands for them: `tenant`, `unlimited` or `banned`.
    pub plans: Vec<String>,
    /// Whether it only counts and never denies.
    pub shadow: bool,
    /// The policy for its requests while the store fails: `allow`, `deny` or `local`.
    pub on_failure: String,
}

/// A tenant, as the dashboard shows it: without API keys.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, utoipa::ToSchema)]
pub struct TenantView {
    /// Its id.
    pub id: String,
    /// The plan that it holds.
    pub plan: String,
}

/// A bucket, as the dashboard shows it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketView {
    /// The limit's full name.
    pub limit: String,
    /// The limit's capacity and refill.
    pub shape: String,
    /// The most tokens that it can hold.
    pub capacity: f64,
    /// Tokens that it holds now, including fractions.
    pub available: f64,
    /// How full it is, from 0 to 1.
    pub level: f64,
    /// Tokens that are refilled per second.
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
    /// The buckets of a decision.
    pub fn of(decision: &Decision) -> Vec<Self> {
        let view = |status: &spile_core::LimitStatus| {
            let (limit, level) = (status.limit(), status.level());
            let capacity = limit.capacity().as_f64();
            Self {
                limit: status.name().to_string(),
                shape: limit.to_string(),
                capacity,
                available: level * capacity,
                level,
                rate_per_second: limit.rate().map_or(0.0, Rate::per_second),
            }
        };
        decision.limits().iter().map(view).collect()
    }
}
