//! Tracks whether the store answers.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, gauge};
use serde::{Deserialize, Serialize};
use spile_core::Micros;

use super::failures::StorelessCounts;
use super::names::{BREAKER, QUEUE, STORE_UP};
use super::registrar::Registrar;
use crate::events::{EventKind, Events};

/// The state of the store.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreHealth {
    /// Where buckets live, without passwords: `memory:`, `redis://127.0.0.1:6379`.
    pub store: String,
    /// The failure policy for decisions that it does not answer: `allow`, `deny` or `local`. Rules may have another.
    #[serde(default)]
    pub on_failure: String,
    /// How many nodes it has. Zero for the embedded store.
    pub nodes: u64,
    /// Nodes whose breaker is open.
    pub breakers_open: u64,
    /// Callers that wait for an answer.
    pub waiting: u64,
    /// Why the store does not answer. `None` while it answers.
    pub trouble: Option<String>,
    /// A problem that does not keep the store from answering, but that an operator should look into.
    #[serde(default)]
    pub warning: Option<String>,
}

/// Asks the store for its state. Called once a second, off the decision path.
pub type HealthProbe = Arc<dyn Fn() -> StoreHealth + Send + Sync>;

/// Sets the gauges, and emits an event when the store is lost and when it is back.
pub(crate) struct StoreHealthTracker {
    breaker: Gauge,
    queue: Gauge,
    up: Gauge,
    now: StoreHealth,
    lost_at: Option<Micros>,
    /// Decisions without the store, as of the last tick.
    degraded: StorelessCounts,
    /// The same as of the last tick before the store was lost.
    degraded_before: StorelessCounts,
    /// Whether the log already says why the store is lost, and not only that it is.
    why_told: bool,
    well_for: u32,
}

/// What the loss of the store means for callers. Rules may have a policy of their own.
fn effect(policy: &str) -> &'static str {
    match policy {
        "allow" => "limits are NOT enforced (policy allow)",
        "deny" => "requests are denied (policy deny)",
        "local" => "limits are enforced by each instance alone (policy local)",
        _ => "decisions follow the failure policy",
    }
}

/// Seconds without a failure after which the store counts as recovered.
const CONVINCED: u32 = 2;

impl StoreHealthTracker {
    pub(crate) fn new(registrar: &Registrar) -> Self {
        let (breaker, queue, up) = registrar.register(|| (gauge!(BREAKER), gauge!(QUEUE), gauge!(STORE_UP)));
        up.set(1.0);
        Self {
            breaker,
            queue,
            up,
            now: StoreHealth::default(),
            lost_at: None,
            degraded: StorelessCounts::default(),
            degraded_before: StorelessCounts::default(),
            why_told: false,
            well_for: 0,
        }
    }

    /// Takes the state of the store at a monotonic `now`, and how many decisions were made without it since the start.
    pub(crate) fn tick(
        &mut self,
        now: Micros,
        health: StoreHealth,
        counts: StorelessCounts,
        events: &Events,
    ) {
        self.breaker.set(health.breakers_open as f64);
        self.queue.set(health.waiting as f64);
        let before = std::mem::replace(&mut self.degraded, counts);
        let degraded = counts.since(before).all();
        let failing = degraded > 0 || health.trouble.is_some() || health.breakers_open > 0;
        self.well_for = if failing { 0 } else { self.well_for.saturating_add(1) };
        match self.lost_at {
            None if failing => {
                (self.lost_at, self.degraded_before) = (Some(now), before);
                self.why_told = health.trouble.is_some();
                let why = health.trouble.clone();
                let why = why.unwrap_or_else(|| format!("{degraded} decisions were made without it"));
                let (store, effect) = (&health.store, effect(&health.on_failure));
                if health.on_failure == "allow" {
                    tracing::error!(target: "spile::store", store, why, "store lost: {effect}");
                } else {
                    tracing::warn!(target: "spile::store", store, why, "store lost: {effect}");
                }
                events.emit(EventKind::StoreLost { why });
            }
            Some(_) if !self.why_told && health.trouble.is_some() => {
                self.why_told = true;
                tracing::warn!(target: "spile::store", store = health.store, why = health.trouble, "store still lost");
            }
            Some(lost_at) if self.well_for >= CONVINCED => {
                self.lost_at = None;
                let lost_for_ms = now.since_us(lost_at) / 1_000;
                let StorelessCounts { passed, refused, local } = counts.since(self.degraded_before);
                tracing::info!(
                    target: "spile::store",
                    store = health.store, lost_for_ms, not_enforced = passed, denied = refused, decided_locally = local,
                    "store recovered after {:?}: {passed} requests passed without a limit, {refused} were denied, {local} \
                     were decided by this instance alone",
                    Duration::from_millis(lost_for_ms)
                );
                events.emit(EventKind::StoreRecovered { lost_for_ms });
            }
            _ => {}
        }
        self.up.set(if self.is_lost() { 0.0 } else { 1.0 });
        self.log_warning(&health);
        self.now = health;
    }

    /// Logs when a warning begins and when it ends, but not when its text changes in between.
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
