//! The metrics of a server. Labels are rules, limits and outcomes, never keys.

mod exposition;
mod process;
mod refused;
mod registry;
mod routes;
mod rpc;
mod saves;
mod store;

use std::sync::Arc;

use bytes::Bytes;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use spile_listener::RequestMetrics;
use spile_observe::{HISTOGRAMS, Watch};

use self::exposition::Expositions;
use self::process::ProcessStats;
pub(crate) use self::refused::RefusedGauges;
pub(crate) use self::registry::RegistryMetrics;
pub(crate) use self::routes::RouteSeries;
pub(crate) use self::rpc::{Answered, RpcMetrics, Unmatched};
pub(crate) use self::saves::SaveMetrics;
pub(crate) use self::store::{EmbeddedMetrics, LeaseMetrics, PermitMetrics, RedisGauges};

use super::build_info;
use crate::config::ObserveConfig;

/// The recorder and the watch of one server. Each server has its own, so that several in one process have metrics of
/// their own.
#[derive(Clone)]
pub(crate) struct Telemetry {
    recorder: Arc<PrometheusRecorder>,
    watch: Watch,
    routes: RouteSeries,
    expositions: Expositions,
    enabled: bool,
}

impl Telemetry {
    /// If metrics are not enabled, all series exist and stay at zero.
    pub(crate) fn new(config: &ObserveConfig) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for (name, bounds) in HISTOGRAMS {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
        }
        let recorder = Arc::new(builder.build_recorder());
        let watch = Watch::builder().recorder(recorder.clone()).show_keys(config.show_keys).build();
        let (routes, expositions) = (RouteSeries::default(), Expositions::new());
        let telemetry = Self { recorder, watch, routes, expositions, enabled: config.enabled };
        build_info::register(&telemetry);
        Ok(telemetry)
    }

    /// The observer of all decisions.
    pub(crate) const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether metrics are enabled.
    pub(crate) const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The routes whose series are exported.
    pub(crate) const fn routes(&self) -> &RouteSeries {
        &self.routes
    }

    /// The response of `/metrics`.
    pub(crate) fn exposition(&self) -> Bytes {
        self.expositions.next(|| {
            let mut text = self.routes.shown_of(&self.recorder.handle().render());
            if let Some(process) = ProcessStats::read() {
                process.write(&mut text);
            }
            text
        })
    }

    /// The metrics of a listener's requests.
    pub(crate) fn requests(&self, listener: &'static str) -> RequestMetrics {
        if !self.enabled {
            return RequestMetrics::disabled();
        }
        let telemetry = self.clone();
        self.register(|| RequestMetrics::lazy(listener, move |make| telemetry.register(make)))
    }

    /// Compacts histograms. They grow until this runs.
    pub(crate) fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }

    /// Makes metric handles. Callers keep them, because looking up a series costs more than counting.
    pub(crate) fn register<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, make)
    }
}
