//! Shows or resets the buckets of one key.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::extract::{Name, QueryParams};
use crate::decide::buckets::{self, BucketState, BucketsError, field_of};
use crate::http::Problem;
use crate::input::fault::Fault;
use crate::openapi::{AuthErrors, BadName, StoreFailed};

/// Which of a key's buckets are meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BucketSelector {
    /// The plan whose buckets are meant; all plans if it is left out.
    #[param(nullable = false, format = "plan-name")]
    plan: Option<String>,
}

/// The buckets of a key.
#[derive(Serialize, ToSchema)]
pub(super) struct Buckets {
    /// The requested key.
    key: String,
    /// One for each limit of the requested plans. A bucket from which nothing was spent is full.
    buckets: Vec<BucketState>,
}

/// Shows the state of the buckets of a key. Spends nothing.
#[utoipa::path(
    get,
    path = "/admin/v1/buckets/{key}",
    tag = "buckets",
    operation_id = "inspectBuckets",
    security(("token" = [])),
    params(
        ("key" = String, Path, description = "Who pays: 1 to 1024 bytes of text without control characters.",
         min_length = 1, max_length = 1024, format = "identity"),
        BucketSelector
    ),
    responses((status = 200, description = "Its buckets.", body = Buckets), BadName, StoreFailed, AuthErrors)
)]
pub(super) async fn inspect(
    State(state): State<AdminState>,
    Name(key): Name,
    QueryParams(which): QueryParams<BucketSelector>,
) -> Result<Json<Buckets>, Problem> {
    let buckets = buckets::inspect(&state.decider, &key, which.plan.as_deref()).await?;
    Ok(Json(Buckets { key, buckets }))
}

/// Makes the buckets of a key full again.
#[utoipa::path(
    delete,
    path = "/admin/v1/buckets/{key}",
    tag = "buckets",
    operation_id = "resetBuckets",
    security(("token" = [])),
    params(
        ("key" = String, Path, description = "Who pays: 1 to 1024 bytes of text without control characters.",
         min_length = 1, max_length = 1024, format = "identity"),
        BucketSelector
    ),
    responses((status = 204, description = "They are full."), BadName, StoreFailed, AuthErrors)
)]
pub(super) async fn reset(
    State(state): State<AdminState>,
    Name(key): Name,
    QueryParams(which): QueryParams<BucketSelector>,
) -> Result<StatusCode, Problem> {
    buckets::reset(&state.decider, &key, which.plan.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<BucketsError> for Problem {
    fn from(why: BucketsError) -> Self {
        match why {
            BucketsError::Invalid(why) => Fault::new(field_of(&why), why).into(),
            BucketsError::Store => Self::store_failed(),
        }
    }
}
