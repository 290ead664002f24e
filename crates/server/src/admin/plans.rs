//! `/admin/v1/plans`.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use utoipa::ToSchema;

use super::Office;
use super::entries;
use super::extract::{JsonBody, Name};
use crate::admin::audit::Audit;
use crate::config::PlanSpec;
use crate::http::Problem;
use crate::openapi::{
    BadName, Conditions, Guarded, Kept, Made, Missing, NamedPlan, Put, Shown, StillThere, Unchanged, Unmade,
};
use crate::registry::{Kind, Which};

/// All plans, by name.
#[derive(ToSchema)]
#[expect(dead_code, reason = "entries are JSON already when they are listed")]
pub(super) struct PlanList {
    plans: Vec<PlanSpec>,
}

/// Lists the plans.
#[utoipa::path(
    get,
    path = "/admin/v1/plans",
    tag = "registry",
    operation_id = "listPlans",
    security(("token" = [])),
    responses((status = 200, description = "All plans.", body = PlanList), Guarded)
)]
pub(super) async fn list(State(office): State<Office>) -> Response {
    entries::list(&office, Kind::Plans)
}

/// Makes a plan under the `name` that it brings along, unless that is taken.
#[utoipa::path(
    post,
    path = "/admin/v1/plans",
    tag = "registry",
    operation_id = "createPlan",
    security(("token" = [])),
    request_body = NamedPlan,
    responses(Made<PlanSpec>, Unmade, Guarded)
)]
pub(super) async fn create(
    State(office): State<Office>,
    audit: Audit,
    body: JsonBody,
) -> Result<Response, Problem> {
    entries::create(office, Kind::Plans, audit, body).await
}

/// Shows a plan.
#[utoipa::path(
    get,
    path = "/admin/v1/plans/{name}",
    tag = "registry",
    operation_id = "showPlan",
    security(("token" = [])),
    params(("name" = String, Path, description = "What the plan is called.", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")),
    responses(Shown<PlanSpec>, BadName, Missing, Guarded)
)]
pub(super) async fn show(State(office): State<Office>, Name(name): Name) -> Result<Response, Problem> {
    entries::show(&office, Kind::Plans, name)
}

/// Puts a plan in place of what has its name, also of what the file says.
#[utoipa::path(
    put,
    path = "/admin/v1/plans/{name}",
    tag = "registry",
    operation_id = "putPlan",
    security(("token" = [])),
    params(("name" = String, Path, description = "What the plan is called.", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$"), Conditions),
    request_body = PlanSpec,
    responses(Put<PlanSpec>, Unchanged, Guarded)
)]
pub(super) async fn put(
    State(office): State<Office>,
    Name(name): Name,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    entries::put(office, Which { kind: Kind::Plans, name }, headers, body).await
}

/// Removes a plan from the registry. What the file says about that name holds again.
#[utoipa::path(
    delete,
    path = "/admin/v1/plans/{name}",
    tag = "registry",
    operation_id = "removePlan",
    security(("token" = [])),
    params(("name" = String, Path, description = "What the plan is called.", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$"), StillThere),
    responses((status = 204, description = "It is gone."), BadName, Kept, Guarded)
)]
pub(super) async fn remove(
    State(office): State<Office>,
    Name(name): Name,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    entries::remove(office, Kind::Plans, name, headers).await
}
