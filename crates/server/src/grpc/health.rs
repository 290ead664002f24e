//! `grpc.health.v1`: the same as `/readyz`, over gRPC.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server;
use tonic_health::server::{HealthReporter, HealthService};

use super::message::SERVICE;
use crate::control::Control;
use crate::serve::stop_requested;

/// How often the store is checked.
const LOOK: Duration = Duration::from_secs(1);
/// The server as a whole, and the one service it has.
const NAMES: [&str; 2] = ["", SERVICE];

pub(super) type HealthServer = health_server::HealthServer<HealthService>;

/// Reports the status of the server.
pub(crate) struct GrpcHealth {
    reporter: HealthReporter,
    control: Arc<Control>,
}

impl GrpcHealth {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { reporter: HealthReporter::new(), control }
    }

    /// Reports the status now. No service name is known before the first report, so it precedes the first caller.
    pub(crate) async fn tell_now(&self) {
        let is_ready = self.control.is_ready();
        self.notify(if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
    }

    pub(crate) fn server(&self) -> HealthServer {
        health_server::HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }

    /// Keeps the status up to date until `stop` is set. Then it becomes `NOT_SERVING` and streams of watchers end, so that
    /// they do not keep the server from stopping.
    pub(crate) async fn follow(mut self, mut stop: watch::Receiver<bool>) {
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                biased;
                () = stop_requested(&mut stop) => break,
                _ = look.tick() => self.tell_now().await,
            }
        }
        self.notify(ServingStatus::NotServing).await;
        for name in NAMES {
            self.reporter.clear_service_status(name).await;
        }
    }

    async fn notify(&self, status: ServingStatus) {
        for name in NAMES {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
