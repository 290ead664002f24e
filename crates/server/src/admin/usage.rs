//! `/admin/v1/tenants/{id}/usage`.

use axum::Json;
use axum::extract::State;

use super::AdminState;
use super::extract::Name;
use crate::control::ControlError;
use crate::decide::usage::{TenantUsage, usage_of};
use crate::http::Problem;
use crate::openapi::{AuthErrors, BadName, Missing, StoreFailed};

/// Shows a tenant's usage in the current quota windows, and the tokens left under its rates. Spends nothing.
///
/// It covers the buckets of the key `tenant:ID` under the tenant's plan and its own limits. Charges of a rule by another key, such as
/// `tenant+path`, or under plans that it names, and charges of a route's limit are in other buckets.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants/{id}/usage",
    tag = "buckets",
    operation_id = "showTenantUsage",
    security(("token" = [])),
    params((
        "id" = String, Path, description = "The id of the tenant.",
        min_length = 1, max_length = 1024, format = "identity"
    )),
    responses(
        (status = 200, description = "Its usage.", body = TenantUsage),
        BadName,
        Missing,
        StoreFailed,
        AuthErrors
    )
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    Name(id): Name,
) -> Result<Json<TenantUsage>, Problem> {
    let usage = usage_of(&state.decider, &id).await?;
    Ok(Json(usage.ok_or(ControlError::Missing)?))
}
