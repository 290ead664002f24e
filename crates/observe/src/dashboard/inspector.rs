//! The bucket inspector: shows the buckets of a key that an operator types in.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::query::QueryParams;
use super::source::{BucketView, PeekError};
use super::{DashboardState, problem};

/// Selects the buckets of a key.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BucketQuery {
    /// The key: 1 to 1024 bytes of text without control characters.
    #[param(min_length = 1, max_length = 1024, format = "identity")]
    key: String,
    /// The plan whose buckets are shown. Every plan if it is empty or left out.
    #[serde(default)]
    #[param(required = false, format = "plan-name")]
    plan: String,
}

/// The buckets of a key, and how the key appears in lists.
#[derive(Serialize, ToSchema)]
pub(super) struct KeyBuckets {
    /// The hash that is shown for the key in the lists of the dashboard.
    mask: String,
    /// One bucket for each limit of the selected plans.
    buckets: Vec<BucketView>,
}

/// Shows the buckets of a key. Spends nothing.
#[utoipa::path(
    get,
    path = "/dashboard/buckets",
    tag = "dashboard",
    operation_id = "dashboardBuckets",
    security(("token" = [])),
    params(BucketQuery),
    responses(
        (status = 200, description = "Its buckets.", body = KeyBuckets),
        (status = 400, description = "The key or the plan makes no sense.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "The store did not answer.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn buckets(
    State(state): State<DashboardState>,
    QueryParams(BucketQuery { key, plan }): QueryParams<BucketQuery>,
) -> Response {
    let mask = state.source.mask(&key);
    match state.source.peek(key, Some(plan).filter(|plan| !plan.is_empty())).await {
        Ok(buckets) => Json(KeyBuckets { mask, buckets }).into_response(),
        Err(PeekError::Invalid { field, why }) => problem(400, field, &why),
        Err(PeekError::Store) => problem(503, "store", "does not answer"),
    }
}
