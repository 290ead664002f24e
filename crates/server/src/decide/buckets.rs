//! Every bucket of one key, found through the plans that are known: looked at, or made full again.

use std::time::Duration;

use serde::Serialize;
use spile_core::{LimitStatus, StoreError};
use spile_policy::Wrong;
use utoipa::ToSchema;

use super::Decider;
use crate::fault::Fault;

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
    /// Milliseconds until Redis deletes it. `None` if there is no bucket yet, and in the embedded store.
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
    for chain in decider.policy().buckets_of(key, plan).map_err(asked)? {
        let ttls = decider.store().times_to_live(&chain.charges()).await?;
        let decision = decider.peek(Some(&chain)).await;
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
    for chain in decider.policy().buckets_of(key, plan).map_err(asked)? {
        decider.reset(&chain).await?;
    }
    Ok(())
}

fn asked(wrong: Wrong) -> Unseen {
    Unseen::Asked(Fault::new(field_of(&wrong), wrong))
}

/// The part of what an operator asks for that is wrong, as the admin API calls it.
pub(crate) const fn field_of(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong::Identity(_) => "key",
        _ => "plan",
    }
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

impl From<StoreError> for Unseen {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
