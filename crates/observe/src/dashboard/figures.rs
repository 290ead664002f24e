//! The figures of the dashboard, under `/dashboard/` for the page and under `/admin/v1/` for scripts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::DashboardState;
use super::export::{self, ExportFormat};
use super::query::QueryParams;
use super::source::{PlanView, RuleView, TenantView};
use crate::analytics::{Analytics, AnalyticsQuery, Day, History, HistoryQuery, MinuteRow, within};
use crate::metrics::StoreRow;
use crate::watch::{Snapshot, Watch};

/// How many tenants are on one page.
const TENANTS_PER_PAGE: usize = 50;

/// Plans and rules, as the page shows them.
#[derive(Serialize, ToSchema)]
pub(super) struct PlansAndRules {
    plans: Vec<PlanView>,
    rules: Vec<RuleView>,
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

/// Plans and rules.
#[utoipa::path(
    get,
    path = "/dashboard/house",
    tag = "dashboard",
    operation_id = "dashboardHouse",
    security(("token" = [])),
    responses((status = 200, description = "The plans and rules in force.", body = PlansAndRules))
)]
pub(super) async fn plans_and_rules(State(state): State<DashboardState>) -> Json<PlansAndRules> {
    let source = &state.source;
    Json(PlansAndRules { plans: source.plans(), rules: source.rules(), warning: source.warning() })
}

/// Selects tenants.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TenantQuery {
    /// Only tenants with this text in their id or in the name of their plan. Case does not matter.
    #[param(required = false)]
    search: String,
    /// The page, from 1. A page after the last one is the last one.
    #[serde(deserialize_with = "within::<_, 1_000_000>")]
    #[param(nullable = false, minimum = 1, maximum = 1_000_000)]
    page: Option<u64>,
}

/// A page of tenants.
#[derive(Serialize, ToSchema)]
pub(super) struct TenantPage {
    /// How many tenants there are on all pages.
    found: usize,
    /// Which page this is, from 1.
    page: usize,
    /// How many pages there are, at least one.
    pages: usize,
    /// The tenants of this page, by id.
    tenants: Vec<TenantView>,
}

impl TenantPage {
    fn of(mut tenants: Vec<TenantView>, query: &TenantQuery) -> Self {
        let wanted = query.search.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        tenants.retain(|tenant| has(&tenant.id) || has(&tenant.plan));
        // The tenant of exactly this id is first, so that its own page finds it.
        tenants.sort_by(|a, b| (a.id != query.search, &a.id).cmp(&(b.id != query.search, &b.id)));
        let (found, pages) = (tenants.len(), tenants.len().div_ceil(TENANTS_PER_PAGE).max(1));
        let page = (query.page.unwrap_or(1) as usize).min(pages);
        let tenants =
            tenants.into_iter().skip((page - 1) * TENANTS_PER_PAGE).take(TENANTS_PER_PAGE).collect();
        Self { found, page, pages, tenants }
    }
}

/// Tenants by page.
#[utoipa::path(
    get,
    path = "/dashboard/tenants",
    tag = "dashboard",
    operation_id = "dashboardTenants",
    security(("token" = [])),
    params(TenantQuery),
    responses(
        (status = 200, description = "Up to 50 tenants.", body = TenantPage),
        (status = 400, description = "The query is invalid.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn tenants(
    State(state): State<DashboardState>,
    QueryParams(query): QueryParams<TenantQuery>,
) -> Json<TenantPage> {
    Json(TenantPage::of(state.source.tenants(), &query))
}

/// Decisions by minute, summed over all rules, or of one rule or tenant.
#[utoipa::path(
    get,
    path = "/dashboard/history",
    tag = "dashboard",
    operation_id = "dashboardHistory",
    security(("token" = [])),
    params(HistoryQuery),
    responses(
        (status = 200, description = "The sums of all instances, or of this one.", body = History),
        (status = 400, description = "The query is invalid.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn history(
    State(analytics): State<Analytics>,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> Json<History> {
    Json(analytics.history(&query).await)
}

/// Selects how the store is shown.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StoreQuery {
    /// The last two minutes by second, or the last day by minute.
    #[param(inline, required = false)]
    by: StoreStep,
}

/// The subject of a row.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum StoreStep {
    Second,
    #[default]
    Minute,
}

/// The latency of this instance's calls to the store, and its decisions without the store.
#[utoipa::path(
    get,
    path = "/dashboard/store",
    tag = "dashboard",
    operation_id = "dashboardStore",
    security(("token" = [])),
    params(StoreQuery),
    responses(
        (status = 200, description = "One row for each second or minute, the oldest first.", body = Vec<StoreRow>),
        (status = 400, description = "The query is invalid.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn store(
    State(watch): State<Watch>,
    QueryParams(query): QueryParams<StoreQuery>,
) -> Json<Vec<StoreRow>> {
    Json(match query.by {
        StoreStep::Second => watch.store_seconds(),
        StoreStep::Minute => watch.store_minutes(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(how_many: usize) -> Vec<TenantView> {
        let tenant = |number| TenantView {
            id: format!("tenant-{number:03}"),
            plan: if number % 2 == 0 { "Gold" } else { "free" }.to_owned(),
        };
        (0..how_many).rev().map(tenant).collect()
    }

    fn page(how_many: usize, search: &str, page: u64) -> (usize, usize, usize, Vec<String>) {
        let query = TenantQuery { search: search.to_owned(), page: Some(page) };
        let TenantPage { found, page, pages, tenants } = TenantPage::of(tenants(how_many), &query);
        (found, page, pages, tenants.into_iter().map(|tenant| tenant.id).collect())
    }

    #[test]
    fn every_tenant_is_on_one_page() {
        let ids: Vec<String> = (1..=11).flat_map(|number| page(501, "", number).3).collect();
        assert_eq!(ids.len(), 501);
        assert!(ids.is_sorted() && page(501, "", 11).3 == ["tenant-500"]);
    }

    #[test]
    fn a_search_finds_ids_and_plans_in_any_case() {
        assert_eq!(page(500, "TENANT-49", 1).0, 10);
        assert_eq!(page(500, "gold", 9), (250, 5, 5, page(500, "gold", 5).3));
        assert_eq!(page(500, "no such", 1), (0, 1, 1, vec![]));
    }
}
