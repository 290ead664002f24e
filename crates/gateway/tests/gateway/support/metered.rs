//! A gateway whose metrics a test can read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use spile_core::Store;
use spile_gateway::GatewayBuilder;

use super::gateway::{Running, serving};

/// The counters and gauges of one gateway, by name and label values.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Metrics {
    /// The value of the counter with this name and these label values, as in `retries_total /`.
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.0.lock().get(series).map_or(0, |value| value.load(Ordering::SeqCst))
    }

    /// The value of the gauge.
    pub(crate) fn gauge(&self, series: &str) -> f64 {
        f64::from_bits(self.count(series))
    }

    /// Whether the gauge has this value.
    pub(crate) fn is_at(&self, series: &str, value: u32) -> bool {
        (self.gauge(series) - f64::from(value)).abs() < 0.5
    }

    fn series(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key.labels().map(|label| format!(" {}", label.value()));
        let name = labels.fold(key.name().to_owned(), |name, label| name + &label);
        Arc::clone(self.0.lock().entry(name).or_default())
    }
}

impl Recorder for Metrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Serves on a free port, and returns the metrics.
pub(crate) async fn metered<S: Store + 'static>(builder: GatewayBuilder<S>) -> (Running, Metrics) {
    let metrics = Metrics::default();
    let gateway = metrics::with_local_recorder(&metrics, || builder.build()).expect("a sound gateway");
    (serving(gateway).await, metrics)
}
