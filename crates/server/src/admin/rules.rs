//! `/admin/v1/rules`.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use utoipa::ToSchema;

use super::Office;
use super::entries;
use super::extract::{JsonBody, Name};
use crate::admin::audit::Audit;
use crate::config::RuleSpec;
use crate::http::Problem;
use crate::openapi::{
    BadName, Conditions, Guarded, Kept, Made, Missing, NamedRule, Put, Shown, StillThere, Unchanged, Unmade,
};
use crate::registry::{Kind, Which};

/// All rules, by name.
#[derive(ToSchema)]
#[expect(dead_code, reason = "entries are JSON already when they are listed")]
pub(super) struct RuleList {
    rules: Vec<RuleSpec>,
}

/// Lists the rules.
#[utoipa::path(
    get,
    path = "/admin/v1/rules",
    tag = "registry",
    operation_id = "listRules",
    security(("token" = [])),
    responses((status = 200, description = "All rules.", body = RuleList), Guarded)
)]
pub(super) async fn list(State(office): State<Office>) -> Response {
    entries::list(&office, Kind::Rules)
}

/// Makes a rule under the `id` that it brings along, unless that is taken.
#[utoipa::path(
    post,
    path = "/admin/v1/rules",
    tag = "registry",
    operation_id = "createRule",
    security(("token" = [])),
    request_body = NamedRule,
    responses(Made<RuleSpec>, Unmade, Guarded)
)]
pub(super) async fn create(
    State(office): State<Office>,
    audit: Audit,
    body: JsonBody,
) -> Result<Response, Problem> {
    entries::create(office, Kind::Rules, audit, body).await
}

/// Shows a rule.
#[utoipa::path(
    get,
    path = "/admin/v1/rules/{id}",
    tag = "registry",
    operation_id = "showRule",
    security(("token" = [])),
    params(("id" = String, Path, description = "What the rule is called.", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")),
    responses(Shown<RuleSpec>, BadName, Missing, Guarded)
)]
pub(super) async fn show(State(office): State<Office>, Name(id): Name) -> Result<Response, Problem> {
    entries::show(&office, Kind::Rules, id)
}

/// Puts a rule in place of what has its name, also of what the file says.
#[utoipa::path(
    put,
    path = "/admin/v1/rules/{id}",
    tag = "registry",
    operation_id = "putRule",
    security(("token" = [])),
    params(("id" = String, Path, description = "What the rule is called.", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$"), Conditions),
    request_body = RuleSpec,
    responses(Put<RuleSpec>, Unchanged, Guarded)
)]
pub(super) async fn put(
    State(office): State<Office>,
    Name(id): Name,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    entries::put(office, Which { kind: Kind::Rules, name: id }, headers, body).await
}

/// Removes a rule from the registry. What the file says about that name holds again.
#[utoipa::path(
    delete,
    path = "/admin/v1/rules/{id}",
    tag = "registry",
    operation_id = "removeRule",
    security(("token" = [])),
    params(("id" = String, Path, description = "What the rule is called.", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$"), StillThere),
    responses((status = 204, description = "It is gone."), BadName, Kept, Guarded)
)]
pub(super) async fn remove(
    State(office): State<Office>,
    Name(id): Name,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    entries::remove(office, Kind::Rules, id, headers).await
}
