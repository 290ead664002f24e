//! The buckets of one key: looked at, or made full again.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::Office;
use crate::buckets::{self, Unseen};
use crate::http::Problem;

/// Which of a key's buckets are meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// All plans where none is named.
    plan: Option<String>,
}

/// How each bucket stands.
pub(super) async fn inspect(
    State(office): State<Office>,
    Path(key): Path<String>,
    Query(which): Query<Which>,
) -> Result<Response, Problem> {
    let buckets = buckets::inspect(&office.decider, &key, which.plan.as_deref()).await?;
    Ok(Json(json!({"key": key, "buckets": buckets})).into_response())
}

/// Makes each bucket full again.
pub(super) async fn reset(
    State(office): State<Office>,
    Path(key): Path<String>,
    Query(which): Query<Which>,
) -> Result<StatusCode, Problem> {
    buckets::reset(&office.decider, &key, which.plan.as_deref()).await?;
    tracing::info!(target: "spile::audit", action = "reset", kind = "buckets", plan = which.plan, "changed");
    Ok(StatusCode::NO_CONTENT)
}

impl From<Unseen> for Problem {
    fn from(why: Unseen) -> Self {
        match why {
            Unseen::Asked(fault) => fault.into(),
            Unseen::Store => Self::store_failed(),
        }
    }
}
