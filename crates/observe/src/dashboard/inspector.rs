//! The bucket inspector: type a key, see its buckets fill.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::house::{BucketView, NotSeen};
use super::query::Asking;
use super::{Desk, problem};

/// Whose buckets are asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Who pays: 1 to 1024 bytes of text without control characters.
    #[param(min_length = 1, max_length = 1024, format = "identity")]
    key: String,
    /// The plan whose buckets are meant; every plan, where it is empty or left out.
    #[serde(default)]
    #[param(required = false, format = "plan-name")]
    plan: String,
}

/// The buckets of a key, and how it is listed.
#[derive(Serialize, ToSchema)]
pub(super) struct Seen {
    /// What the key is called in the lists of the dashboard.
    mask: String,
    /// One for each limit of the plans that were asked about.
    buckets: Vec<BucketView>,
}

/// Shows the buckets of a key. Spends nothing.
#[utoipa::path(
    get,
    path = "/dashboard/buckets",
    tag = "dashboard",
    operation_id = "dashboardBuckets",
    security(("token" = [])),
    params(Whose),
    responses(
        (status = 200, description = "Its buckets.", body = Seen),
        (status = 400, description = "The key or the plan makes no sense.", body = Object,
         content_type = "application/problem+json"),
        (status = 503, description = "The store did not answer.", body = Object,
         content_type = "application/problem+json"),
    )
)]
pub(super) async fn buckets(
    State(desk): State<Desk>,
    Asking(Whose { key, plan }): Asking<Whose>,
) -> Response {
    let mask = desk.house.mask(&key);
    match desk.house.look(key, Some(plan).filter(|plan| !plan.is_empty())).await {
        Ok(buckets) => Json(Seen { mask, buckets }).into_response(),
        Err(NotSeen::Asked { field, why }) => problem(400, field, &why),
        Err(NotSeen::Store) => problem(503, "store", "does not answer"),
    }
}
