//! The live dashboard: one page, the stream of figures that updates it, and its other requests.
//!
//! It belongs on the admin listener, never on a listener for callers. The [`page`] itself contains no figures and needs
//! no protection; the server that mounts the other routes decides who may read them. The page sends the operator's
//! token if the server requires one. The routes and their `OpenAPI` description come from the same declarations.

mod export;
mod figures;
mod inspector;
mod page;
mod query;
mod source;
mod stream;

use std::sync::Arc;

use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

pub use self::source::{BucketView, DashboardSource, LimitView, PeekError, PlanView, RuleView, TenantView};
use crate::analytics::Analytics;
use crate::watch::Watch;

/// The state of the dashboard's handlers.
#[derive(Clone)]
pub struct DashboardState {
    analytics: Analytics,
    source: Arc<dyn DashboardSource>,
}

impl DashboardState {
    /// The state for these analytics, their watch and this source.
    pub fn new(analytics: impl Into<Analytics>, source: Arc<dyn DashboardSource>) -> Self {
        Self { analytics: analytics.into(), source }
    }
}

impl FromRef<DashboardState> for Analytics {
    fn from_ref(state: &DashboardState) -> Self {
        state.analytics.clone()
    }
}

impl FromRef<DashboardState> for Watch {
    fn from_ref(state: &DashboardState) -> Self {
        state.analytics.watch().clone()
    }
}

/// The page at `/dashboard`.
pub fn page<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::new().routes(routes!(page::show))
}

/// The figures of the page, below `/dashboard/`. Keys are in plain text only if the watch allows that.
pub fn figures() -> OpenApiRouter<DashboardState> {
    OpenApiRouter::new()
        .routes(routes!(stream::events))
        .routes(routes!(figures::snapshot))
        .routes(routes!(figures::plans_and_rules))
        .routes(routes!(figures::tenants))
        .routes(routes!(figures::history))
        .routes(routes!(figures::store))
        .routes(routes!(figures::day))
        .routes(routes!(figures::minutes))
        .routes(routes!(figures::minutes_csv))
}

/// The buckets of any key. Mount it behind the operator's token.
pub fn inspector() -> OpenApiRouter<DashboardState> {
    OpenApiRouter::new().routes(routes!(inspector::buckets))
}

/// The figures and minutes for scripts, below `/admin/v1`. Mount it behind the operator's token.
pub fn api() -> OpenApiRouter<DashboardState> {
    OpenApiRouter::new()
        .routes(alias(routes!(figures::snapshot), "/admin/v1/snapshot", "snapshot"))
        .routes(alias(routes!(figures::minutes), "/admin/v1/analytics", "analytics"))
        .routes(alias(routes!(figures::minutes_csv), "/admin/v1/analytics.csv", "analyticsCsv"))
}

/// A GET handler under another path and operation id.
fn alias(
    (schemas, mut paths, handler): UtoipaMethodRouter<DashboardState>,
    path: &str,
    operation_id: &str,
) -> UtoipaMethodRouter<DashboardState> {
    for mut item in std::mem::take(&mut paths.paths).into_values() {
        if let Some(get) = &mut item.get {
            get.operation_id = Some(operation_id.to_owned());
        }
        paths.paths.insert(path.to_owned(), item);
    }
    (schemas, paths, handler)
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
