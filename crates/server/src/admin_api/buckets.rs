//! The buckets of one key: looked at, or made full again.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use spile_core::{Charges, Cost, LimitStatus};

use super::Office;
use crate::bill::Bill;
use crate::fault::Fault;
use crate::http::Problem;
use crate::identity;
use crate::policies::Policies;

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
    let mut buckets = Vec::new();
    for plan in names(&office, &which)? {
        let policies = office.decider.policies();
        let decision = office.decider.look(charges(&key, &plan, &policies)?).await;
        if decision.degraded() {
            return Err(Problem::store_failed());
        }
        buckets.extend(decision.limits().iter().map(bucket));
    }
    Ok(Json(json!({"key": key, "buckets": buckets})).into_response())
}

/// Makes each bucket full again.
pub(super) async fn reset(
    State(office): State<Office>,
    Path(key): Path<String>,
    Query(which): Query<Which>,
) -> Result<StatusCode, Problem> {
    for plan in names(&office, &which)? {
        let policies = office.decider.policies();
        let charges = charges(&key, &plan, &policies)?;
        office.decider.forget(charges).await.map_err(|_| Problem::store_failed())?;
    }
    tracing::info!(target: "spile::audit", action = "reset", kind = "buckets", plan = which.plan, "changed");
    Ok(StatusCode::NO_CONTENT)
}

fn names(office: &Office, which: &Which) -> Result<Vec<String>, Fault> {
    let policies = office.decider.policies();
    match &which.plan {
        Some(plan) if policies.plan(plan).is_none() => {
            Err(Fault::new("plan", format_args!("no plan is called {plan:?}")))
        }
        Some(plan) => Ok(vec![plan.clone()]),
        None => Ok(policies.plans().into_iter().map(|plan| plan.name().to_string()).collect()),
    }
}

/// Charges that cost nothing: they only name buckets.
fn charges<'k>(key: &'k str, plan: &str, policies: &Policies) -> Result<Charges<'k>, Fault> {
    let key = identity::key(key).map_err(|why| Fault::new("key", why))?;
    let mut bill = Bill::default();
    bill.add_plan(key, plan, Cost::ZERO, policies)?;
    bill.into_charges()
}

fn bucket(status: &LimitStatus) -> Value {
    json!({
        "limit": status.name().as_str(),
        "capacity": status.limit().capacity(),
        "tokens": status.remaining(),
        "level": status.level(),
        "resetAfterMs": u64::try_from(status.reset_after().as_millis()).unwrap_or(u64::MAX),
    })
}
