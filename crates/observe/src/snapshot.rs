//! Everything that an operator sees at one glance: what the dashboard and `spile top` show.

use serde::{Deserialize, Serialize};

use crate::close_look::TopKey;
use crate::event::Event;
use crate::health::StoreHealth;
use crate::latencies::Percentiles;
use crate::levels::Level;
use crate::rates::Second;
use crate::tally::Tally;

/// How things stand.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Milliseconds since the watch began.
    pub up_ms: u64,
    /// Decisions since the watch began.
    pub totals: Tally,
    /// Decisions that were made without the store since then.
    pub degraded: u64,
    /// Decisions per second, the mean of the last five whole seconds.
    pub per_second: Tally,
    /// The share of the last five seconds' decisions that was refused.
    pub denial_ratio: f64,
    /// The last two minutes, second by second.
    pub seconds: Vec<Second>,
    /// How long the store takes.
    pub store_latency: Percentiles,
    /// How the store stands.
    pub store: StoreHealth,
    /// Whether the store is out of reach.
    pub store_lost: bool,
    /// How full buckets are, by limit.
    pub levels: Vec<Level>,
    /// Who is denied most.
    pub top_denied: Vec<TopKey>,
    /// Who spends most.
    pub top_spending: Vec<TopKey>,
    /// The limits that decide most, with what they decided.
    pub top_limits: Vec<TopLimit>,
    /// What happened lately, the latest first.
    pub events: Vec<Event>,
}

/// What one limit decided since the watch began.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopLimit {
    /// The limit.
    pub limit: String,
    /// What it decided.
    #[serde(flatten)]
    pub tally: Tally,
}
