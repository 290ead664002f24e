//! The permits that this instance holds, for the dashboard.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Asks for the permits of this instance.
pub type PermitProbe = Arc<dyn Fn() -> PermitFigures + Send + Sync>;

/// The permits of this instance.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PermitFigures {
    /// By limit.
    pub limits: Vec<LimitPermits>,
    /// The keys that hold most, in plain text, and how many.
    pub holding_most: Vec<(String, u64)>,
}

/// The permits of one limit.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitPermits {
    /// The limit.
    pub limit: String,
    /// How many each key may hold at once.
    pub of: u64,
    /// How many this instance holds for requests in flight, of all keys.
    pub held: u64,
    /// How many it has taken so far, also for callers that hold them themselves.
    pub acquired: u64,
    /// How many were released so far.
    pub released: u64,
    /// How many it could not renew in time.
    pub lost: u64,
}
