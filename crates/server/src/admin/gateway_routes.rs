//! The routes of the gateway, and which of them no rule limits.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::AdminState;
use crate::openapi::AuthErrors;

/// Every route of the gateway.
#[derive(Serialize, ToSchema)]
pub(super) struct Routes {
    /// The routes, as they are written.
    routes: Vec<RouteStatus>,
}

/// A route of the gateway.
#[derive(Serialize, ToSchema)]
#[schema(examples(json!({"name": "/scores", "path": "/scores", "upstreams": ["http://127.0.0.1:9000"], "limited": true})))]
struct RouteStatus {
    /// The name in metrics, and in the keys of the route's limits.
    name: String,
    /// The path prefix of requests that are forwarded.
    path: String,
    /// Only requests for these hosts; all requests if it is absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    hosts: Vec<String>,
    /// The services that receive them.
    upstreams: Vec<String>,
    /// Whether a rule or a limit of the route limits some of its requests.
    limited: bool,
}

/// Lists the routes of the gateway, and reports which of them no rule limits.
#[utoipa::path(
    get,
    path = "/admin/v1/routes",
    tag = "server",
    operation_id = "listRoutes",
    security(("token" = [])),
    responses((status = 200, description = "The routes.", body = Routes), AuthErrors)
)]
pub(super) async fn list(State(state): State<AdminState>) -> Json<Routes> {
    let config = state.control.config();
    let policy = state.decider.policy();
    let state = |route: &crate::config::RouteConfig| RouteStatus {
        name: route.name.clone(),
        path: route.path.clone(),
        hosts: route.hosts.clone(),
        upstreams: route.upstreams.clone(),
        limited: route.is_limited(&policy),
    };
    Json(Routes { routes: config.routes.iter().map(state).collect() })
}
