//! `/admin/v1/tenants`, and their API keys.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use spile_policy::ApiKeyHash;
use utoipa::ToSchema;

use super::Office;
use super::entries;
use super::extract::{JsonBody, Name};
use crate::admin::audit::Audit;
use crate::config::TenantSpec;
use crate::control::{Change, Condition};
use crate::http::Problem;
use crate::openapi::{
    BadName, Conditions, Guarded, Kept, Made, Missing, NamedTenant, Put, Shown, StillThere, Unchanged,
    Unkept, Unmade,
};
use crate::registry::{Kind, Which};

/// Random bytes in an API key.
const KEY_BYTES: usize = 24;

/// All tenants, by name.
#[derive(ToSchema)]
#[expect(dead_code, reason = "entries are JSON already when they are listed")]
pub(super) struct TenantList {
    tenants: Vec<TenantSpec>,
}

/// Lists the tenants.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants",
    tag = "registry",
    operation_id = "listTenants",
    security(("token" = [])),
    responses((status = 200, description = "All tenants.", body = TenantList), Guarded)
)]
pub(super) async fn list(State(office): State<Office>) -> Response {
    entries::list(&office, Kind::Tenants)
}

/// Makes a tenant under the `id` that it brings along, unless that is taken.
#[utoipa::path(
    post,
    path = "/admin/v1/tenants",
    tag = "registry",
    operation_id = "createTenant",
    security(("token" = [])),
    request_body = NamedTenant,
    responses(Made<TenantSpec>, Unmade, Guarded)
)]
pub(super) async fn create(
    State(office): State<Office>,
    audit: Audit,
    body: JsonBody,
) -> Result<Response, Problem> {
    entries::create(office, Kind::Tenants, audit, body).await
}

/// Shows a tenant.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants/{id}",
    tag = "registry",
    operation_id = "showTenant",
    security(("token" = [])),
    params(("id" = String, Path, description = "What the tenant is called.", min_length = 1, max_length = 1024, format = "identity")),
    responses(Shown<TenantSpec>, BadName, Missing, Guarded)
)]
pub(super) async fn show(State(office): State<Office>, Name(id): Name) -> Result<Response, Problem> {
    entries::show(&office, Kind::Tenants, id)
}

/// Puts a tenant in place of what has its name, also of what the file says.
#[utoipa::path(
    put,
    path = "/admin/v1/tenants/{id}",
    tag = "registry",
    operation_id = "putTenant",
    security(("token" = [])),
    params(("id" = String, Path, description = "What the tenant is called.", min_length = 1, max_length = 1024, format = "identity"), Conditions),
    request_body = TenantSpec,
    responses(Put<TenantSpec>, Unchanged, Guarded)
)]
pub(super) async fn put(
    State(office): State<Office>,
    Name(id): Name,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    entries::put(office, Which { kind: Kind::Tenants, name: id }, headers, body).await
}

/// Removes a tenant from the registry. What the file says about that name holds again.
#[utoipa::path(
    delete,
    path = "/admin/v1/tenants/{id}",
    tag = "registry",
    operation_id = "removeTenant",
    security(("token" = [])),
    params(("id" = String, Path, description = "What the tenant is called.", min_length = 1, max_length = 1024, format = "identity"), StillThere),
    responses((status = 204, description = "It is gone."), BadName, Kept, Guarded)
)]
pub(super) async fn remove(
    State(office): State<Office>,
    Name(id): Name,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    entries::remove(office, Kind::Tenants, id, headers).await
}

/// An API key that was just made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewKey {
    /// The key. It is shown this once: only its hash is kept.
    #[schema(pattern = "^spile_[0-9a-f]{48}$")]
    api_key: String,
}

/// Makes a new API key for a tenant.
#[utoipa::path(
    post,
    path = "/admin/v1/tenants/{id}/keys",
    tag = "registry",
    operation_id = "addTenantKey",
    security(("token" = [])),
    params((
        "id" = String, Path, description = "What the tenant is called.",
        min_length = 1, max_length = 1024, format = "identity"
    )),
    responses(
        (status = 201, description = "The key, shown this once.", body = NewKey),
        (status = 409, description = "The tenant has 100 keys, the most there can be.",
         body = crate::openapi::Problem, content_type = "application/problem+json"),
        BadName,
        Missing,
        Unkept,
        Guarded
    )
)]
pub(super) async fn add_key(State(office): State<Office>, Name(id): Name) -> Result<Response, Problem> {
    let api_key =
        random_key().map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no randomness"))?;
    let hash = ApiKeyHash::of(api_key.as_bytes());
    let which = Which { kind: Kind::Tenants, name: id };
    office.control.change(&which, &Change::AddKey(hash), &Condition::Always).await?;
    Ok((StatusCode::CREATED, Json(NewKey { api_key })).into_response())
}

fn random_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("spile_{}", hex::encode(bytes)))
}
