//! Reads or resets all buckets of one key, under one plan or under every plan.

use std::time::Duration;

use serde::Serialize;
use spile_core::{Decision, HeldPermit, Inspect, Kept, Limit, LimitStatus, StoreError};
use spile_policy::{AskError, Chain};
use utoipa::ToSchema;

use super::Decider;
use crate::input::tokens::Tokens;

/// The state of a bucket.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketState {
    /// The limit's full name.
    limit: String,
    /// The most tokens that it can hold.
    #[schema(value_type = f64, minimum = 0)]
    capacity: Tokens,
    /// Tokens that it holds, rounded down to the smallest cost.
    #[schema(value_type = f64, minimum = 0)]
    tokens: Tokens,
    /// Tokens that it owes, because late charges took more than it held.
    #[schema(value_type = f64, minimum = 0)]
    owed: Tokens,
    /// How full it is, from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    level: f64,
    /// Milliseconds until it is full.
    reset_after_ms: u64,
    /// Tokens that come back, and in what time; for a quota, its period; for a concurrency, how long a permit is held.
    #[schema(examples("1/s", "100000 per month in Europe/Berlin"))]
    refill: String,
    /// Whether the store has it. A bucket from which nothing was ever spent is in no store, and is full.
    exists: bool,
    /// Milliseconds until Redis deletes it. `None` if there is no bucket yet, and in the embedded store.
    ttl_ms: Option<u64>,
    /// Who holds its permits. `null` unless the limit is a concurrency.
    permits: Option<HeldPermits>,
}

/// The permits of a concurrency that are held.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeldPermits {
    /// How many are held.
    held: u64,
    /// The holders whose permits end first, up to a hundred.
    holders: Vec<PermitHolder>,
}

/// Who holds a permit.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermitHolder {
    /// The name that the holder gave, if it gave one.
    holder: Option<String>,
    /// When it was asked for, by the clock of the instance that asked: milliseconds since the Unix epoch.
    since_ms: u64,
    /// When it ends unless it is renewed, by the store's clock: milliseconds since the Unix epoch.
    until_ms: u64,
    /// Its id in the store.
    id: String,
}

/// The most holders that are shown of one bucket.
const MAX_SHOWN_HOLDERS: usize = 100;

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
        let decision = decider.peek_chain(&chain).await;
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
        buckets.extend(states(decider, &chain, &decision).await?);
    }
    Ok(buckets)
}

/// The state of each bucket of a chain that was peeked at.
pub(crate) async fn states(
    decider: &Decider,
    chain: &Chain,
    decision: &Decision,
) -> Result<Vec<BucketState>, StoreError> {
    let charges = chain.charges();
    let stored = decider.store().kept(&charges).await?;
    let mut holders = match chain.first_permit() {
        Some(_) => decider.store().holders(&charges).await?.into_iter(),
        None => Vec::new().into_iter(),
    };
    let states = decision.limits().iter().zip(stored);
    Ok(states
        .map(|(status, stored)| BucketState::new(status, stored, holders.next().unwrap_or_default()))
        .collect())
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
    fn new(status: &LimitStatus, kept: Kept, holders: Vec<HeldPermit>) -> Self {
        let permits = status.limit().is_concurrency().then(|| HeldPermits::new(status, holders));
        Self {
            limit: status.name().to_string(),
            capacity: status.limit().capacity().into(),
            tokens: status.remaining().into(),
            owed: status.owed().into(),
            level: status.level(),
            reset_after_ms: whole_ms(status.reset_after()),
            refill: refill(status.limit()),
            exists: kept != Kept::Absent || permits.as_ref().is_some_and(|permits| permits.held > 0),
            ttl_ms: match kept {
                Kept::For(ttl) => Some(whole_ms(ttl)),
                Kept::Absent | Kept::UntilFull => None,
            },
            permits,
        }
    }

    /// The limit's full name.
    pub(crate) fn limit(&self) -> &str {
        &self.limit
    }

    /// How many of its permits are held. `None` unless the limit is a concurrency.
    pub(crate) fn held(&self) -> Option<u64> {
        self.permits.as_ref().map(|permits| permits.held)
    }

    /// Whether the store has it.
    pub(crate) const fn exists(&self) -> bool {
        self.exists
    }
}

impl HeldPermits {
    fn new(status: &LimitStatus, holders: Vec<HeldPermit>) -> Self {
        // The store lists only some holders, and more permits than the capacity are held after it was lowered.
        let taken = (status.limit().capacity() - status.remaining()).whole_tokens();
        let held = taken.max(u64::try_from(holders.len()).unwrap_or(u64::MAX));
        let holders = holders.into_iter().take(MAX_SHOWN_HOLDERS).map(PermitHolder::from).collect();
        Self { held, holders }
    }
}

impl From<HeldPermit> for PermitHolder {
    fn from(HeldPermit { id, until }: HeldPermit) -> Self {
        Self {
            holder: id.holder().map(str::to_owned),
            since_ms: id.since().get() / 1_000,
            until_ms: until.get() / 1_000,
            id: id.to_string(),
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
