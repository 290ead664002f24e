//! The live dashboard: one page, the stream that moves it, and what the page asks for besides.
//!
//! [`router`] is mounted on the admin listener, never where callers are.

mod house;
mod stream;

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;
use spile_core::Key;

pub use self::house::{BucketView, House, Later, LimitView, PlanView, TenantView};
use crate::analytics::{self, Analytics, Asked};
use crate::sums::SumsError;
use crate::watch::Watch;

const PAGE: &str = include_str!("page.html");
/// The page brings everything along and talks to nobody but where it came from.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page at `/dashboard` and what lies below it.
pub fn router(analytics: impl Into<Analytics>, house: Arc<dyn House>) -> axum::Router {
    axum::Router::new()
        .route("/dashboard", get(page))
        .route("/dashboard/events", get(stream::events))
        .route("/dashboard/snapshot", get(snapshot))
        .route("/dashboard/house", get(plans_and_tenants))
        .route("/dashboard/buckets", get(buckets))
        .route("/dashboard/day", get(day))
        .route("/dashboard/minutes", get(minutes))
        .route("/dashboard/minutes.csv", get(minutes_csv))
        .with_state(Desk { analytics: analytics.into(), house })
}

/// The same figures and minutes for scripts, below `/admin/v1`: to be mounted behind the operator's token.
pub fn api<S: Clone + Send + Sync + 'static>(analytics: impl Into<Analytics>) -> axum::Router<S> {
    axum::Router::new()
        .route("/admin/v1/snapshot", get(snapshot))
        .route("/admin/v1/analytics", get(minutes))
        .route("/admin/v1/analytics.csv", get(minutes_csv))
        .with_state(analytics.into())
}

#[derive(Clone)]
struct Desk {
    analytics: Analytics,
    house: Arc<dyn House>,
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

impl FromRef<Analytics> for Watch {
    fn from_ref(analytics: &Analytics) -> Self {
        analytics.watch().clone()
    }
}

async fn page() -> impl IntoResponse {
    let headers: [(HeaderName, &str); 4] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (headers, PAGE)
}

async fn snapshot(State(watch): State<Watch>) -> impl IntoResponse {
    Json(watch.snapshot())
}

async fn plans_and_tenants(State(desk): State<Desk>) -> impl IntoResponse {
    Json(json!({ "plans": desk.house.plans(), "tenants": desk.house.tenants() }))
}

/// Whose buckets are asked for.
#[derive(Deserialize)]
struct Whose {
    key: String,
    #[serde(default)]
    plan: String,
}

async fn buckets(State(desk): State<Desk>, Query(Whose { key, plan }): Query<Whose>) -> Response {
    let mask = match Key::new(&key) {
        Ok(key) => desk.analytics.watch().mask(key),
        Err(why) => return problem(StatusCode::BAD_REQUEST, &why.to_string()),
    };
    match desk.house.look(key, Some(plan).filter(|plan| !plan.is_empty())).await {
        Ok(buckets) => Json(json!({ "mask": mask, "buckets": buckets })).into_response(),
        Err(why) => problem(StatusCode::BAD_REQUEST, &why),
    }
}

async fn day(State(analytics): State<Analytics>) -> impl IntoResponse {
    Json(analytics.day().await)
}

async fn minutes(State(analytics): State<Analytics>, Query(asked): Query<Asked>) -> Response {
    match analytics.rows(&asked).await {
        Ok(rows) => Json(rows).into_response(),
        Err(why) => no_sums(&why),
    }
}

async fn minutes_csv(State(analytics): State<Analytics>, Query(asked): Query<Asked>) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8"),
        (CONTENT_DISPOSITION, "attachment; filename=\"spile-minutes.csv\""),
    ];
    match analytics.rows(&asked).await {
        Ok(rows) => (headers, analytics::csv(&rows)).into_response(),
        Err(why) => no_sums(&why),
    }
}

fn no_sums(why: &SumsError) -> Response {
    let detail = format!("{why}; scope=instance gives the minutes of this instance alone");
    problem(StatusCode::SERVICE_UNAVAILABLE, &detail)
}

fn problem(status: StatusCode, why: &str) -> Response {
    let title = status.canonical_reason();
    let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": why });
    (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
