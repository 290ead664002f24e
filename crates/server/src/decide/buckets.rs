//! Reads or resets all buckets of one key, under one plan or under every plan.

use std::time::Duration;

use serde::Serialize;
use spile_core::{Decision, Limit, LimitStatus, StoreError};
use spile_policy::{AskError, Chain};
use utoipa::ToSchema;

use super::{Decider, StoredBucket};

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
    /// Whole tokens that it owes, because late charges took more than was there.
    owed: u64,
    /// How full it is, from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    level: f64,
    /// Milliseconds until it is full.
    reset_after_ms: u64,
    /// Tokens that come back, and in what time; of a quota, when it starts anew.
    #[schema(examples("1/s", "100000 per month in Europe/Berlin"))]
    refill: String,
    /// Whether the store has it. A bucket from which nothing was ever spent is in no store, and is full.
    exists: bool,
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
        let stored = decider.store().stored(&chain.charges()).await?;
        let state = |(status, stored): (&LimitStatus, StoredBucket)| BucketState::new(status, stored);
        buckets.extend(decision.limits().iter().zip(stored).map(state));
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
    pub(crate) fn new(status: &LimitStatus, StoredBucket { exists, ttl }: StoredBucket) -> Self {
        Self {
            limit: status.name().to_string(),
            capacity: status.limit().capacity(),
            tokens: status.remaining(),
            owed: status.owed(),
            level: status.level(),
            reset_after_ms: whole_ms(status.reset_after()),
            refill: refill(status.limit()),
            exists,
            ttl_ms: ttl.map(whole_ms),
        }
    }

    /// The limit's full name.
    pub(crate) fn limit(&self) -> &str {
        &self.limit
    }

    /// Whether the store has it.
    pub(crate) const fn exists(&self) -> bool {
        self.exists
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

/// `1/s`, as files have it; a quota `1000 per month`.
pub(crate) fn refill(limit: &Limit) -> String {
    let text = limit.to_string();
    text.split_once(", ").map_or_else(|| text.clone(), |(_, refill)| refill.to_owned())
}

pub(crate) fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A span in its two largest units: the milliseconds of an hour do not matter.
pub(crate) fn rough(span: Duration) -> String {
    let text = humantime::format_duration(Duration::from_millis(whole_ms(span))).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
