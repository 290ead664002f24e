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
use tower::ServiceExt;

use crate::http::Problem;

/// Everything that operators can ask of the `admin` listener.
#[derive(Clone)]
pub(crate) struct Admin {
    router: axum::Router,
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
    pub(crate) fn new(readiness: Readiness, metrics: PrometheusHandle) -> Self {
        let health = axum::Router::new().route("/livez", get("ok\n")).route("/readyz", get(ready));
        let metrics = axum::Router::new().route("/metrics", get(exposition)).with_state(metrics);
        let router = health
            .with_state(readiness)
            .merge(metrics)
            .fallback(|| async { Problem::no_such_path().into_reply() })
            .method_not_allowed_fallback(|| async { Problem::wrong_method("GET, HEAD").into_reply() });
        Self { router }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<axum::body::Body> {
        let Ok(response) = self.router.clone().oneshot(request).await;
        response
    }
}

/// Whether traffic should be sent here. A failing store does not matter unless the policy refuses without it.
async fn ready(State(readiness): State<Readiness>) -> impl IntoResponse {
    if readiness.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn exposition(State(metrics): State<PrometheusHandle>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}
