//! Every bucket of one key, found through the plans that are known: looked at, or made full again.

use std::time::Duration;

use serde::Serialize;
use spile_core::{Charges, Cost, LimitStatus, StoreError};
use utoipa::ToSchema;

use crate::bill::Bill;
use crate::decider::Decider;
use crate::fault::Fault;
use crate::identity;
use crate::policies::Policies;

/// How a bucket stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketState {
    /// The limit's full name.
    limit: String,
    /// The most tokens that it holds.
    capacity: u32,
    /// Whole tokens that it holds.
    tokens: u64,
    /// How full it is, from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    level: f64,
    /// Milliseconds until it is full.
    reset_after_ms: u64,
    /// Milliseconds until Redis forgets it; nothing where there is no bucket yet, and in the embedded store.
    ttl_ms: Option<u64>,
}

/// Why buckets cannot be looked at or reset.
#[derive(Debug)]
pub(crate) enum Unseen {
    /// What was asked for makes no sense.
    Asked(Fault),
    /// The store does not answer.
    Store,
}

/// How each bucket of the key stands under that plan, or under every plan.
pub(crate) async fn inspect(
    decider: &Decider,
    key: &str,
    plan: Option<&str>,
) -> Result<Vec<BucketState>, Unseen> {
    let mut buckets = Vec::new();
    for plan in names(decider, plan)? {
        let charges = charges(key, &plan, &decider.policies())?;
        let ttls = decider.store().times_to_live(&charges).await?;
        let decision = decider.look(charges).await;
        if decision.degraded() {
            return Err(Unseen::Store);
        }
        let state = |(status, ttl): (&LimitStatus, Option<Duration>)| BucketState::new(status, ttl);
        buckets.extend(decision.limits().iter().zip(ttls).map(state));
    }
    Ok(buckets)
}

/// Makes each bucket of the key full again, under that plan or under every plan.
pub(crate) async fn reset(decider: &Decider, key: &str, plan: Option<&str>) -> Result<(), Unseen> {
    for plan in names(decider, plan)? {
        let charges = charges(key, &plan, &decider.policies())?;
        decider.forget(charges).await?;
    }
    Ok(())
}

impl BucketState {
    fn new(status: &LimitStatus, ttl: Option<Duration>) -> Self {
        Self {
            limit: status.name().to_string(),
            capacity: status.limit().capacity(),
            tokens: status.remaining(),
            level: status.level(),
            reset_after_ms: whole_ms(status.reset_after()),
            ttl_ms: ttl.map(whole_ms),
        }
    }
}

impl From<Fault> for Unseen {
    fn from(fault: Fault) -> Self {
        Self::Asked(fault)
    }
}

impl From<StoreError> for Unseen {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn names(decider: &Decider, plan: Option<&str>) -> Result<Vec<String>, Fault> {
    let policies = decider.policies();
    match plan {
        Some(plan) if policies.plan(plan).is_none() => {
            Err(Fault::new("plan", format_args!("no plan is called {plan:?}")))
        }
        Some(plan) => Ok(vec![plan.to_owned()]),
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
