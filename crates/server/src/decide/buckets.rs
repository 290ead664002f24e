//! Reads or resets all buckets of one key, under one plan or under every plan.

use std::time::Duration;

use serde::Serialize;
use spile_core::{Decision, LimitStatus, StoreError};
use spile_policy::{AskError, Chain};
use utoipa::ToSchema;

use super::Decider;

/// The state of a bucket.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketState {
    /// The limit's full name.
    limit: String,
    /// The most tokens that it can hold.
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

/// Why buckets could not be read or reset.
#[derive(Debug)]
pub(crate) enum BucketsError {
    /// The key or the plan is invalid.
    Invalid(AskError),
    /// The store does not answer.
    Store,
}

/// Peeks at the buckets of the key under that plan, or under every plan: one chain and its decision for each plan.
pub(crate) async fn peek(
    decider: &Decider,
    key: &str,
    plan: Option<&str>,
) -> Result<Vec<(Chain, Decision)>, BucketsError> {
    let mut peeked = Vec::new();
    for chain in decider.policy().buckets_of(key, plan)? {
        let decision = decider.peek(Some(&chain)).await;
        if decision.degraded() {
            return Err(BucketsError::Store);
        }
        peeked.push((chain, decision));
    }
    Ok(peeked)
}

/// The state of each bucket of the key, with its time to live.
pub(crate) async fn inspect(
    decider: &Decider,
    key: &str,
    plan: Option<&str>,
) -> Result<Vec<BucketState>, BucketsError> {
    let mut buckets = Vec::new();
    for (chain, decision) in peek(decider, key, plan).await? {
        let ttls = decider.store().times_to_live(&chain.charges()).await?;
        let state = |(status, ttl): (&LimitStatus, Option<Duration>)| BucketState::new(status, ttl);
        buckets.extend(decision.limits().iter().zip(ttls).map(state));
    }
    Ok(buckets)
}

/// Makes each bucket of the key full again.
pub(crate) async fn reset(decider: &Decider, key: &str, plan: Option<&str>) -> Result<(), BucketsError> {
    for chain in decider.policy().buckets_of(key, plan)? {
        decider.reset(&chain).await?;
    }
    Ok(())
}

/// The invalid parameter, as the admin API names it.
pub(crate) const fn field_of(why: &AskError) -> &'static str {
    match why {
        AskError::Identity(_) => "key",
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

impl From<AskError> for BucketsError {
    fn from(why: AskError) -> Self {
        Self::Invalid(why)
    }
}

impl From<StoreError> for BucketsError {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
