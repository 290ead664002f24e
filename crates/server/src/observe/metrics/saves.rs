//! Metrics of saving buckets to a file.

use std::sync::Arc;

use metrics::{Counter, Gauge, counter, gauge};
use spile_core::Clock;

use super::Telemetry;

/// The metrics of saves.
pub(crate) struct SaveMetrics {
    saved: Counter,
    failed: Counter,
    buckets: Gauge,
    at: Gauge,
    clock: Arc<dyn Clock>,
}

impl SaveMetrics {
    pub(crate) fn new(telemetry: &Telemetry, clock: &Arc<dyn Clock>) -> Self {
        telemetry.register(|| Self {
            saved: counter!("ratelimit_store_saves_total", "result" => "saved"),
            failed: counter!("ratelimit_store_saves_total", "result" => "failed"),
            buckets: gauge!("ratelimit_store_saved_buckets"),
            at: gauge!("ratelimit_store_saved_timestamp_seconds"),
            clock: Arc::clone(clock),
        })
    }

    pub(crate) fn saved(&self, buckets: u64) {
        self.saved.increment(1);
        self.buckets.set(buckets as f64);
        self.at.set(self.clock.wall().get() as f64 / 1e6);
    }

    pub(crate) fn failed(&self) {
        self.failed.increment(1);
    }
}
