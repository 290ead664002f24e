//! The live dashboard: one page, the stream that moves it, and what the page asks for besides.
//!
//! All of it is mounted on the admin listener, never where callers are. The [`page`] itself shows nothing that is
//! worth keeping to oneself; whoever mounts the rest decides who may see it. The page sends the operator's token
//! where it is asked for one. Routes and their description come from the same lines.

mod export;
mod figures;
mod house;
mod inspector;
mod query;
mod stream;

use std::sync::Arc;

use axum::extract::FromRef;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::house::{BucketView, House, Later, LimitView, NotSeen, PlanView, TenantView};
use crate::analytics::Analytics;
use crate::watch::Watch;

const PAGE: &str = include_str!("page.html");
/// The page brings everything along and talks to nobody but where it came from.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the handlers work with.
#[derive(Clone)]
pub struct Desk {
    analytics: Analytics,
    house: Arc<dyn House>,
}

impl Desk {
    /// A desk from which these analytics, their watch and this house are seen.
    pub fn new(analytics: impl Into<Analytics>, house: Arc<dyn House>) -> Self {
        Self { analytics: analytics.into(), house }
    }
}

impl FromRef<Desk> for Analytics {
    fn from_ref(desk: &Desk) -> Self {
        desk.analytics.clone()
    }
}

impl FromRef<Desk> for Watch {
    fn from_ref(desk: &Desk) -> Self {
        desk.analytics.watch().clone()
    }
}

/// The page at `/dashboard`.
pub fn page<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::new().routes(routes!(show_page))
}

/// The figures on the page, below `/dashboard/`: who is denied and who spends, by name only if the watch may.
pub fn figures() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(stream::events))
        .routes(routes!(figures::snapshot))
        .routes(routes!(figures::plans_and_tenants))
        .routes(routes!(figures::day))
        .routes(routes!(figures::minutes))
        .routes(routes!(figures::minutes_csv))
}

/// The buckets of any key that somebody can name: to be mounted behind the operator's token.
pub fn inspector() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(inspector::buckets))
}

/// The same figures and minutes for scripts, below `/admin/v1`: to be mounted behind the operator's token.
pub fn api() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(figures::api_snapshot))
        .routes(routes!(figures::analytics))
        .routes(routes!(figures::analytics_csv))
}

/// The live dashboard.
#[utoipa::path(
    get,
    path = "/dashboard",
    tag = "dashboard",
    operation_id = "dashboard",
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"))
)]
async fn show_page() -> impl IntoResponse {
    let headers: [(HeaderName, &str); 4] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (headers, PAGE)
}

fn problem(status: u16, field: &str, why: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": format!("{field}: {why}"),
        "field": field,
    });
    (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
