//! The `admin` listener: health and metrics. Never the same listener as callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use metrics_exporter_prometheus::PrometheusHandle;
use spile_observe::{Watch, dashboard};
use tower::ServiceExt;

use crate::decider::Decider;
use crate::house::DeciderHouse;
use crate::http::Problem;
use crate::metrics::{RedisGauges, Telemetry};

/// Everything that operators can ask of the `admin` listener.
#[derive(Clone)]
pub(crate) struct Admin {
    router: axum::Router,
}

/// What the handlers work with.
#[derive(Clone)]
struct Desk {
    decider: Arc<Decider>,
    readiness: Readiness,
    metrics: PrometheusHandle,
    watch: Watch,
    gauges: RedisGauges,
}

/// Whether the server still takes on work. Clones tell each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness {
    draining: Arc<AtomicBool>,
}

impl Readiness {
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

impl Admin {
    pub(crate) fn new(
        decider: Arc<Decider>,
        api: axum::Router,
        readiness: Readiness,
        telemetry: &Telemetry,
    ) -> Self {
        let (metrics, watch) = (telemetry.handle(), telemetry.watch().clone());
        let dashboard = dashboard::router(watch.clone(), Arc::new(DeciderHouse(Arc::clone(&decider))));
        let state = Desk { decider, readiness, metrics, watch, gauges: RedisGauges::new(telemetry) };
        let router = axum::Router::new()
            .route("/livez", get("ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(exposition))
            .with_state(state)
            .merge(dashboard)
            .merge(api)
            .fallback(|| async { Problem::no_such_path().into_reply() })
            .method_not_allowed_fallback(|| async { Problem::other_method().into_reply() });
        Self { router }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<axum::body::Body> {
        let Ok(response) = self.router.clone().oneshot(request).await;
        response
    }
}

/// Whether traffic should be sent here. A failing store does not matter unless the policy refuses without it.
async fn ready(State(desk): State<Desk>) -> impl IntoResponse {
    if desk.readiness.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if desk.decider.refuses_all() {
        (StatusCode::SERVICE_UNAVAILABLE, "store out of reach\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn exposition(State(desk): State<Desk>) -> impl IntoResponse {
    desk.watch.flush();
    if let Some(stats) = desk.decider.store().redis_stats() {
        desk.gauges.show(stats);
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], desk.metrics.render())
}
