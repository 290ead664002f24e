//! The figures on the page, and the same for scripts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::export::{self, Format};
use super::house::{PlanView, TenantView};
use super::query::Asking;
use super::{Desk, problem};
use crate::analytics::{Analytics, Asked, Day};
use crate::minutes::MinuteRow;
use crate::snapshot::Snapshot;
use crate::sums::SumsError;
use crate::watch::Watch;

/// Plans and tenants, as they are shown.
#[derive(Serialize, ToSchema)]
pub(super) struct PlansAndTenants {
    plans: Vec<PlanView>,
    tenants: Vec<TenantView>,
    /// What an operator should look into: how many entries of the registry are in quarantine.
    warning: Option<String>,
}

/// Everything on the page.
#[utoipa::path(
    get,
    path = "/dashboard/snapshot",
    tag = "dashboard",
    operation_id = "dashboardSnapshot",
    security(("token" = [])),
    responses((status = 200, description = "How things stand.", body = Snapshot))
)]
pub(super) async fn snapshot(State(watch): State<Watch>) -> Json<Snapshot> {
    Json(watch.snapshot())
}

/// Everything on the page, for scripts.
#[utoipa::path(
    get,
    path = "/admin/v1/snapshot",
    tag = "dashboard",
    operation_id = "snapshot",
    security(("token" = [])),
    responses((status = 200, description = "How things stand.", body = Snapshot))
)]
pub(super) async fn api_snapshot(State(watch): State<Watch>) -> Json<Snapshot> {
    Json(watch.snapshot())
}

/// Plans and tenants.
#[utoipa::path(
    get,
    path = "/dashboard/house",
    tag = "dashboard",
    operation_id = "dashboardHouse",
    security(("token" = [])),
    responses((status = 200, description = "Those in force.", body = PlansAndTenants))
)]
pub(super) async fn plans_and_tenants(State(desk): State<Desk>) -> Json<PlansAndTenants> {
    let house = &desk.house;
    Json(PlansAndTenants { plans: house.plans(), tenants: house.tenants(), warning: house.warning() })
}

/// The last 24 hours, summed by rule and by tenant.
#[utoipa::path(
    get,
    path = "/dashboard/day",
    tag = "dashboard",
    operation_id = "dashboardDay",
    security(("token" = [])),
    responses((status = 200, description = "Of all instances, or of this one.", body = Day))
)]
pub(super) async fn day(State(analytics): State<Analytics>) -> Response {
    Json(&*analytics.day().await).into_response()
}

/// The last 24 hours, minute by minute.
#[utoipa::path(
    get,
    path = "/dashboard/minutes",
    tag = "dashboard",
    operation_id = "dashboardMinutes",
    security(("token" = [])),
    params(Asked),
    responses(
        (status = 200, description = "One row for each minute of each rule and tenant.", body = Vec<MinuteRow>),
        (status = 400, description = "The query makes no sense.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "What all instances have counted is out of reach.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn minutes(State(analytics): State<Analytics>, Asking(asked): Asking<Asked>) -> Response {
    rows(&analytics, &asked).await
}

/// The last 24 hours, minute by minute, for scripts.
#[utoipa::path(
    get,
    path = "/admin/v1/analytics",
    tag = "dashboard",
    operation_id = "analytics",
    security(("token" = [])),
    params(Asked),
    responses(
        (status = 200, description = "One row for each minute of each rule and tenant.", body = Vec<MinuteRow>),
        (status = 400, description = "The query makes no sense.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "What all instances have counted is out of reach.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn analytics(State(analytics): State<Analytics>, Asking(asked): Asking<Asked>) -> Response {
    rows(&analytics, &asked).await
}

/// The last 24 hours as CSV.
#[utoipa::path(
    get,
    path = "/dashboard/minutes.csv",
    tag = "dashboard",
    operation_id = "dashboardMinutesCsv",
    security(("token" = [])),
    params(Asked),
    responses(
        (status = 200, description = "`minute,by,name,allowed,denied,shadow`.", body = String,
         content_type = "text/csv"),
        (status = 400, description = "The query makes no sense.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "What all instances have counted is out of reach.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn minutes_csv(
    State(analytics): State<Analytics>,
    Asking(asked): Asking<Asked>,
) -> Response {
    csv(&analytics, &asked).await
}

/// The last 24 hours as CSV, for scripts.
#[utoipa::path(
    get,
    path = "/admin/v1/analytics.csv",
    tag = "dashboard",
    operation_id = "analyticsCsv",
    security(("token" = [])),
    params(Asked),
    responses(
        (status = 200, description = "`minute,by,name,allowed,denied,shadow`.", body = String,
         content_type = "text/csv"),
        (status = 400, description = "The query makes no sense.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "What all instances have counted is out of reach.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn analytics_csv(
    State(analytics): State<Analytics>,
    Asking(asked): Asking<Asked>,
) -> Response {
    csv(&analytics, &asked).await
}

async fn rows(analytics: &Analytics, asked: &Asked) -> Response {
    export::stream(analytics, asked, Format::Json).await.unwrap_or_else(|why| no_sums(&why))
}

async fn csv(analytics: &Analytics, asked: &Asked) -> Response {
    export::stream(analytics, asked, Format::Csv).await.unwrap_or_else(|why| no_sums(&why))
}

fn no_sums(why: &SumsError) -> Response {
    problem(503, "scope", &format!("{why}; scope=instance gives the minutes of this instance alone"))
}
