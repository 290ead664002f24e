//! Routes the requests of the `admin` listener, and answers those about health and metrics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{Method, Request, Response, StatusCode};
use spile_listener::{ClientBody, HttpHandler, RequestOrigin, UnpacedBody};
use spile_observe::{Analytics, StoreState, Watch, dashboard};
use tower::ServiceExt;
use utoipa::IntoResponses;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{AdminState, TokenGuard, api, audit, require, require_if_any};
use crate::control::Control;
use crate::decide::Decider;
use crate::http::{HostCheck, Problem, is_unclear};
use crate::observe::dashboard_source::DeciderDashboard;
use crate::observe::metrics::{EmbeddedMetrics, LeaseMetrics, PermitMetrics, RedisGauges, Telemetry};
use crate::openapi::{self, AuthErrors, NoOtherMethod};

/// The handlers of the `admin` listener.
#[derive(Clone)]
pub(crate) struct Admin {
    router: Router,
    hosts: HostCheck,
}

/// The state of the handlers.
#[derive(Clone)]
struct StatusState {
    decider: Arc<Decider>,
    control: Arc<Control>,
    readiness: Readiness,
    metrics: Telemetry,
    watch: Watch,
    gauges: RedisGauges,
    embedded: EmbeddedMetrics,
    leases: LeaseMetrics,
    permits: PermitMetrics,
}

/// Whether the server still accepts work. Clones share it.
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
        state: AdminState,
        analytics: Analytics,
        readiness: Readiness,
        telemetry: &Telemetry,
        guard: TokenGuard,
        hosts: HostCheck,
    ) -> Self {
        let decider = Arc::clone(&state.decider);
        let (metrics, watch) = (telemetry.clone(), telemetry.watch().clone());
        let source = DeciderDashboard(Arc::clone(&decider), Arc::clone(&state.control));
        let seen = dashboard::DashboardState::new(analytics, Arc::new(source));
        let (gauges, embedded) = (RedisGauges::new(telemetry), EmbeddedMetrics::new(telemetry));
        let (leases, permits) = (LeaseMetrics::new(telemetry), PermitMetrics::new(telemetry));
        let control = Arc::clone(&state.control);
        let status =
            StatusState { decider, control, readiness, metrics, watch, gauges, embedded, leases, permits };
        let guarded = plain(api())
            .layer(from_fn_with_state(state.clone(), audit::record))
            .with_state(state)
            .merge(plain(dashboard::api().merge(dashboard::inspector())).with_state(seen.clone()))
            .layer(from_fn_with_state(guard.clone(), require));
        let figures =
            plain(dashboard::figures()).with_state(seen).layer(from_fn_with_state(guard, require_if_any));
        let router = plain(open())
            .with_state(status)
            .merge(figures)
            .merge(guarded)
            .route("/", get(home))
            .fallback(|| async { Problem::no_such_admin_path() })
            .method_not_allowed_fallback(|| async { Problem::other_method() });
        Self { router, hosts }
    }
}

impl HttpHandler for Admin {
    type Body = UnpacedBody<axum::body::Body>;

    async fn handle(self, origin: RequestOrigin, mut request: Request<ClientBody>) -> Response<Self::Body> {
        let guarded = is_guarded(request.method(), request.uri().path());
        let response = if is_unclear(origin, &request) {
            Problem::ambiguous_length().into_response()
        } else if let Err(problem) = self.hosts.check(&request, guarded) {
            problem.into_response()
        } else {
            request.extensions_mut().insert(ConnectInfo(origin.peer));
            let Ok(response) = self.router.oneshot(request.map(axum::body::Body::new)).await;
            response
        };
        response.map(UnpacedBody)
    }
}

/// True if only pages of this listener may send the request. A link to the dashboard or to the description may be on any page.
fn is_guarded(method: &Method, path: &str) -> bool {
    !method.is_safe() || path.starts_with("/dashboard/") || path.starts_with("/admin/")
}

/// The `OpenAPI` description of every path of this listener.
pub(crate) fn document() -> OpenApi {
    let mut document = open().into_openapi();
    document.merge(api().into_openapi());
    let seen = dashboard::figures().merge(dashboard::inspector()).merge(dashboard::api());
    let mut seen = seen.into_openapi();
    for item in seen.paths.paths.values_mut() {
        // The dashboard does not know that a token guards it here.
        item.get.iter_mut().for_each(|get| get.responses.responses.extend(AuthErrors::responses()));
    }
    document.merge(seen);
    document
}

/// The routes without their descriptions.
fn plain<S: Clone + Send + Sync + 'static>(router: OpenApiRouter<S>) -> Router<S> {
    router.split_for_parts().0
}

/// The paths that need no token.
fn open() -> OpenApiRouter<StatusState> {
    OpenApiRouter::new()
        .routes(routes!(alive))
        .routes(routes!(ready))
        .routes(routes!(exposition))
        .routes(routes!(description))
        .merge(dashboard::page())
}

/// Redirects browsers to the dashboard, and lists the paths for other clients. Not an operation of the API.
async fn home() -> impl IntoResponse {
    let text = "This is the admin listener of Spile: /dashboard, /livez, /readyz, /metrics, /openapi.json and /admin/v1.\n";
    (StatusCode::FOUND, [(LOCATION, "/dashboard"), (CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}

/// Reports that the process runs.
#[utoipa::path(
    get,
    path = "/livez",
    tag = "server",
    operation_id = "livez",
    responses((status = 200, description = "`ok`.", body = String, content_type = "text/plain"), NoOtherMethod)
)]
async fn alive() -> &'static str {
    "ok\n"
}

/// Reports whether traffic should be sent here. A failing store matters only if the failure policy is `deny`. An instance whose registry
/// is in Redis is not ready until it has read it once; if Redis is out of reach, it waits only for the first seconds.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    operation_id = "readyz",
    responses(
        (status = 200, description = "`ready`, and below it what the store has trouble with and how many entries of the \
         registry are in quarantine, if there are any.", body = String, content_type = "text/plain"),
        (status = 503, description = "`draining`, `registry not read yet` and why, or `store lost` and why.",
         body = String, content_type = "text/plain"),
        NoOtherMethod
    )
)]
async fn ready(State(status): State<StatusState>) -> impl IntoResponse {
    if status.readiness.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    let (is_ready, store) = (status.control.is_ready(), status.decider.store());
    let lines = [
        is_ready.then(|| "ready\n".to_owned()),
        status.control.unread().map(|why| format!("registry not read yet: {why}\n")),
        store_line(store.trouble(), &status.watch),
        store.warning().map(|warning| format!("store warning: {warning}\n")),
        // Names no entry, because this path requires no token.
        status.control.config().quarantine().counted().map(|counted| format!("registry: {counted}\n")),
    ];
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, lines.into_iter().flatten().collect())
}

/// Why the store is lost or slow. A loss is reported at once, without waiting for the next tick of the watch.
fn store_line(trouble: Option<String>, watch: &Watch) -> Option<String> {
    let (state, why) = match trouble {
        Some(_) => (StoreState::Lost, trouble),
        None => watch.store_state(),
    };
    Some(format!("store {}: {}\n", state.as_str(), why?))
}

/// Metrics, in Prometheus's text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "server",
    operation_id = "metrics",
    responses((status = 200, description = "All metrics.", body = String, content_type = "text/plain"), NoOtherMethod)
)]
async fn exposition(State(status): State<StatusState>) -> impl IntoResponse {
    status.watch.flush();
    let (redis, embedded) = (status.decider.store().redis_stats(), status.decider.embedded_usage());
    if let Some(stats) = redis {
        status.gauges.show(stats);
    }
    status.embedded.show(embedded);
    let expired = embedded.expired_permits + redis.map_or(0, |stats| stats.expired_permits);
    status.permits.show(&status.decider.permit_stats(), expired);
    status.leases.show(status.decider.limiter().lease_stats());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], status.metrics.exposition())
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "server",
    operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object, content_type = "application/json"),
              NoOtherMethod)
)]
async fn description() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(openapi::json);
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
}
