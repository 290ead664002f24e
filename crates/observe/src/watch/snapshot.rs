//! The figures that the dashboard and `spile top` show.

use serde::{Deserialize, Serialize};

use crate::events::Event;
use crate::metrics::{
    LatencyPercentiles, LimitPermits, OutcomeCounts, SecondRow, StoreHealth, StoreState, StorelessCounts,
};
use crate::sampling::{BucketLevel, TopKey};

/// The figures of one moment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Milliseconds since the watch was built.
    pub up_ms: u64,
    /// Decisions since the watch was built.
    pub totals: OutcomeCounts,
    /// Decisions that were made without the store since then.
    pub degraded: u64,
    /// Decisions since then from the deny cache or from leased tokens.
    #[serde(default)]
    pub nearby: LocalCounts,
    /// Decisions per second, the mean of the last five whole seconds.
    pub per_second: OutcomeCounts,
    /// The share of the last five seconds' decisions that was denied.
    pub denial_ratio: f64,
    /// The last two minutes, second by second.
    pub seconds: Vec<SecondRow>,
    /// How long calls to the store take.
    pub store_latency: LatencyPercentiles,
    /// The state of the store.
    pub store: StoreHealth,
    /// The state: well, slow or lost.
    pub store_state: StoreState,
    /// Why it is slow or lost. `None` while it is well.
    #[serde(default)]
    pub store_message: Option<String>,
    /// When the store went out of reach, and the decisions since then. `None` while it answers.
    #[serde(default)]
    pub outage: Option<StoreOutage>,
    /// Whether keys are in plain text. If not, every key is shown as a hash.
    #[serde(default)]
    pub keys_shown: bool,
    /// How full buckets are, by limit.
    pub levels: Vec<BucketLevel>,
    /// The keys that are denied most.
    pub top_denied: Vec<TopKey>,
    /// The keys that spend most.
    pub top_spending: Vec<TopKey>,
    /// The permits of this instance, by limit.
    #[serde(default)]
    pub permits: Vec<LimitPermits>,
    /// The keys that hold most permits of this instance.
    #[serde(default)]
    pub top_holding: Vec<TopKey>,
    /// The limits with the most decisions.
    pub top_limits: Vec<TopLimit>,
    /// Recent events, the latest first.
    pub events: Vec<Event>,
}

/// Decisions that needed no call of the store.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LocalCounts {
    /// Denials repeated from a cached answer of the store.
    pub deny_cache: u64,
    /// Decisions from tokens that had been leased in advance.
    pub lease: u64,
}

/// A time without the store.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreOutage {
    /// When it began, in milliseconds since the epoch.
    pub since_ms: u64,
    /// The decisions since then.
    pub decisions: StorelessCounts,
}

/// The decisions of one limit since the watch was built.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopLimit {
    /// The limit.
    pub limit: String,
    /// Its decisions, counted.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
}
