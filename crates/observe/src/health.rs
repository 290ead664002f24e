//! Whether the store answers, as far as anybody can tell.

use std::sync::Arc;

use metrics::{Gauge, gauge};
use serde::{Deserialize, Serialize};
use spile_core::Micros;

use crate::event::{Events, What};
use crate::names::{BREAKER, QUEUE, STORE_UP};
use crate::registrar::Registrar;

/// How the store stands now.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreHealth {
    /// Where buckets live, without passwords: `memory:`, `redis://127.0.0.1:6379`.
    pub store: String,
    /// Nodes that it talks to; none for the embedded store.
    pub nodes: u64,
    /// Nodes whose breaker is open.
    pub breakers_open: u64,
    /// Callers that wait for an answer.
    pub waiting: u64,
    /// What keeps it from answering, while something does.
    pub trouble: Option<String>,
    /// What does not, and should be looked into all the same.
    #[serde(default)]
    pub warning: Option<String>,
}

/// Asks the store how it stands. Called once a second, off the decision path.
pub type AskHealth = Arc<dyn Fn() -> StoreHealth + Send + Sync>;

/// The gauges, and whether the store was last seen lost.
pub(crate) struct Health {
    breaker: Gauge,
    queue: Gauge,
    up: Gauge,
    now: StoreHealth,
    lost_at: Option<Micros>,
    /// Whether it was told why the store is lost, or only that it is.
    why_told: bool,
    well_for: u32,
}

/// Seconds without a failure after which the store counts as recovered.
const CONVINCED: u32 = 2;

impl Health {
    pub(crate) fn new(registrar: &Registrar) -> Self {
        let (breaker, queue, up) = registrar.register(|| (gauge!(BREAKER), gauge!(QUEUE), gauge!(STORE_UP)));
        up.set(1.0);
        Self { breaker, queue, up, now: StoreHealth::default(), lost_at: None, why_told: false, well_for: 0 }
    }

    /// Takes what the store says of itself at a monotonic `now`, and how many decisions were made without it since the last time.
    pub(crate) fn tick(&mut self, now: Micros, health: StoreHealth, degraded: u64, events: &Events) {
        self.breaker.set(health.breakers_open as f64);
        self.queue.set(health.waiting as f64);
        let failing = degraded > 0 || health.trouble.is_some() || health.breakers_open > 0;
        self.well_for = if failing { 0 } else { self.well_for.saturating_add(1) };
        match self.lost_at {
            None if failing => {
                self.lost_at = Some(now);
                self.why_told = health.trouble.is_some();
                let why = health.trouble.clone();
                let why = why.unwrap_or_else(|| format!("{degraded} decisions were made without it"));
                tracing::warn!(target: "spile::store", store = health.store, why, "store lost");
                events.tell(What::StoreLost { why });
            }
            Some(_) if !self.why_told && health.trouble.is_some() => {
                self.why_told = true;
                tracing::warn!(target: "spile::store", store = health.store, why = health.trouble, "store still lost");
            }
            Some(lost_at) if self.well_for >= CONVINCED => {
                self.lost_at = None;
                let lost_for_ms = now.since_us(lost_at) / 1_000;
                tracing::info!(target: "spile::store", store = health.store, lost_for_ms, "store recovered");
                events.tell(What::StoreRecovered { lost_for_ms });
            }
            _ => {}
        }
        self.up.set(if self.is_lost() { 0.0 } else { 1.0 });
        self.log_warning(&health);
        self.now = health;
    }

    /// Logs a warning when it comes and when it goes. Its words may change meanwhile.
    fn log_warning(&self, health: &StoreHealth) {
        match (&self.now.warning, &health.warning) {
            (None, Some(warning)) => tracing::warn!(target: "spile::store", "{warning}"),
            (Some(warning), None) => tracing::info!(target: "spile::store", "over: {warning}"),
            _ => {}
        }
    }

    pub(crate) const fn is_lost(&self) -> bool {
        self.lost_at.is_some()
    }

    pub(crate) fn now(&self) -> StoreHealth {
        self.now.clone()
    }
}
