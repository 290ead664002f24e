//! The figures of the dashboard, under `/dashboard/` for the page and under `/admin/v1/` for scripts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::DashboardState;
use super::export::{self, ExportFormat};
use super::query::QueryParams;
use super::source::{PlanView, TenantView};
use crate::analytics::{Analytics, AnalyticsQuery, Day, MinuteRow};
use crate::watch::{Snapshot, Watch};

/// Plans and tenants, as the page shows them.
#[derive(Serialize, ToSchema)]
pub(super) struct PlansAndTenants {
    plans: Vec<PlanView>,
    tenants: Vec<TenantView>,
    /// A problem that an operator should look into: how many entries of the registry are in quarantine.
    warning: Option<String>,
}

/// The current figures.
#[utoipa::path(
    get,
    path = "/dashboard/snapshot",
    tag = "dashboard",
    operation_id = "dashboardSnapshot",
    security(("token" = [])),
    responses((status = 200, description = "The current figures.", body = Snapshot))
)]
pub(super) async fn snapshot(State(watch): State<Watch>) -> Json<Snapshot> {
    Json(watch.snapshot())
}

/// Plans and tenants.
#[utoipa::path(
    get,
    path = "/dashboard/house",
    tag = "dashboard",
    operation_id = "dashboardHouse",
    security(("token" = [])),
    responses((status = 200, description = "The plans and tenants in force.", body = PlansAndTenants))
)]
pub(super) async fn plans_and_tenants(State(state): State<DashboardState>) -> Json<PlansAndTenants> {
    let source = &state.source;
    Json(PlansAndTenants { plans: source.plans(), tenants: source.tenants(), warning: source.warning() })
}

/// The last 24 hours, summed by rule and by tenant.
#[utoipa::path(
    get,
    path = "/dashboard/day",
    tag = "dashboard",
    operation_id = "dashboardDay",
    security(("token" = [])),
    responses((status = 200, description = "The sums of all instances, or of this one.", body = Day))
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
    params(AnalyticsQuery),
    responses(
        (status = 200, description = "One row for each minute of each rule and tenant.", body = Vec<MinuteRow>),
        (status = 400, description = "The query is invalid.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "The minutes of all instances are out of reach.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn minutes(
    State(analytics): State<Analytics>,
    QueryParams(query): QueryParams<AnalyticsQuery>,
) -> Response {
    export::stream(&analytics, &query, ExportFormat::Json).await
}

/// The last 24 hours as CSV.
#[utoipa::path(
    get,
    path = "/dashboard/minutes.csv",
    tag = "dashboard",
    operation_id = "dashboardMinutesCsv",
    security(("token" = [])),
    params(AnalyticsQuery),
    responses(
        (status = 200, description = "`minute,by,name,allowed,denied,shadow`.", body = String,
         content_type = "text/csv"),
        (status = 400, description = "The query is invalid.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "The minutes of all instances are out of reach.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn minutes_csv(
    State(analytics): State<Analytics>,
    QueryParams(query): QueryParams<AnalyticsQuery>,
) -> Response {
    export::stream(&analytics, &query, ExportFormat::Csv).await
}
