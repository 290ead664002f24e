//! `/admin/v1/tenants/{id}/keys`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use spile_policy::ApiKeyHash;
use utoipa::ToSchema;

use super::AdminState;
use super::extract::Name;
use crate::control::{Change, Condition};
use crate::http::Problem;
use crate::openapi::{AuthErrors, BadName, Missing, SaveErrors};
use crate::registry::{EntryId, Kind};

/// Random bytes in an API key.
const KEY_BYTES: usize = 24;

/// An API key that was just made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewKey {
    /// The key. It is shown only once, because only its hash is kept.
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
        "id" = String, Path, description = "The id of the tenant.",
        min_length = 1, max_length = 1024, format = "identity"
    )),
    responses(
        (status = 201, description = "The key, shown this once.", body = NewKey),
        (status = 409, description = "The tenant has 100 keys, the most there can be.",
         body = crate::openapi::Problem, content_type = "application/problem+json"),
        BadName,
        Missing,
        SaveErrors,
        AuthErrors
    )
)]
pub(super) async fn add_key(State(state): State<AdminState>, Name(id): Name) -> Result<Response, Problem> {
    let api_key =
        random_key().map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no randomness"))?;
    let hash = ApiKeyHash::of(api_key.as_bytes());
    let which = EntryId { kind: Kind::Tenants, name: id };
    state.control.change(&which, &Change::AddKey(hash), &Condition::Always).await?;
    Ok((StatusCode::CREATED, Json(NewKey { api_key })).into_response())
}

fn random_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("spile_{}", hex::encode(bytes)))
}
