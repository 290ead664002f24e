//! What is counted, under the names that dashboards know. Labels are rules, limits and outcomes, never keys.

mod decisions;
mod http;
mod store;

use std::sync::Arc;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

pub(crate) use self::decisions::DecisionMetrics;
pub(crate) use self::http::HttpMetrics;
pub(crate) use self::store::{Operation, RedisGauges, StoreMetrics};

const HTTP_DURATION: &str = "http_server_request_duration_seconds";
const STORE_DURATION: &str = "ratelimit_store_duration_seconds";
const BUCKET_LEVEL: &str = "ratelimit_bucket_level_ratio";

/// From 50 µs, where an embedded decision lies, to a second, where something is wrong.
const SECONDS: [f64; 13] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
const RATIOS: [f64; 6] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9];

/// One server's own series. Each server has its own, so that several in one process do not count for each other.
#[derive(Clone)]
pub(crate) struct Telemetry {
    recorder: Arc<PrometheusRecorder>,
}

impl Telemetry {
    pub(crate) fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(HTTP_DURATION.to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full(STORE_DURATION.to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full(BUCKET_LEVEL.to_owned()), &RATIOS)?
            .build_recorder();
        Ok(Self { recorder: Arc::new(recorder) })
    }

    /// What `/metrics` shows.
    pub(crate) fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }

    /// Takes a handle on a series, to be held: looking a series up costs more than counting in it.
    pub(crate) fn register<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, make)
    }
}
