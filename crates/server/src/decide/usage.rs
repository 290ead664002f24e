//! The usage of a tenant: for a bill, and for the tenant itself.

use serde::Serialize;
use spile_calendar::Calendar;
use spile_core::LimitStatus;
use spile_tower::response::Rfc3339;
use utoipa::ToSchema;

use super::Decider;
use super::buckets::{BucketsError, refill, whole_ms};
use crate::input::tokens::Tokens;

/// The usage of a tenant under its plan and its own limits.
///
/// It is read from the buckets of the key `tenant:ID`: those charged by rules whose `key` is the tenant and whose `plans` are the
/// tenant's.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TenantUsage {
    /// The id of the tenant.
    tenant: String,
    /// The plan that it holds.
    plan: String,
    /// The time of the report, by the store's clock.
    #[schema(format = DateTime)]
    at: String,
    /// Its quotas, in the order of the plan.
    quotas: Vec<QuotaUsage>,
    /// Its rates, in the order of the plan.
    rates: Vec<RateLevel>,
}

/// The usage of a quota in the current window.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct QuotaUsage {
    /// The limit's full name.
    #[schema(examples("gold/month"))]
    name: String,
    /// Tokens in each window.
    #[schema(value_type = f64, minimum = 0)]
    quota: Tokens,
    /// Tokens used. More than the quota if late charges took more, or the quota was larger before.
    #[schema(value_type = f64, minimum = 0)]
    used: Tokens,
    /// Tokens left, rounded down to the smallest cost.
    #[schema(value_type = f64, minimum = 0)]
    remaining: Tokens,
    /// The period of the quota.
    #[schema(examples("month"))]
    per: String,
    /// The time zone of the quota.
    #[schema(examples("Europe/Berlin"))]
    zone: String,
    /// The first moment of the window, in that zone.
    #[schema(format = DateTime, examples("2027-01-15T00:00:00+01:00"))]
    window_start: String,
    /// The first moment after the window, in that zone.
    #[schema(format = DateTime, examples("2027-02-15T00:00:00+01:00"))]
    window_end: String,
}

/// The level of a rate. Earlier usage is not kept.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RateLevel {
    /// The limit's full name.
    #[schema(examples("gold/burst"))]
    name: String,
    /// The most tokens that it can hold.
    #[schema(value_type = f64, minimum = 0)]
    capacity: Tokens,
    /// Tokens left, rounded down to the smallest cost.
    #[schema(value_type = f64, minimum = 0)]
    remaining: Tokens,
    /// Tokens owed, because late charges took more than was left.
    #[schema(value_type = f64, minimum = 0)]
    owed: Tokens,
    /// The tokens that come back, and their period.
    #[schema(examples("1/s"))]
    refill: String,
    /// Milliseconds until it is full.
    reset_after_ms: u64,
}

/// The usage of the tenant, by the store. `None` if the tenant is unknown.
pub(crate) async fn usage_of(decider: &Decider, id: &str) -> Result<Option<TenantUsage>, BucketsError> {
    let policy = decider.policy();
    let Some(tenant) = policy.tenant(id) else { return Ok(None) };
    let decision = decider.peek_chain(&policy.buckets_of_tenant(tenant)?).await;
    if decision.degraded() {
        return Err(BucketsError::Store);
    }
    let (quotas, rates) = decision.limits().iter().fold((Vec::new(), Vec::new()), |mut lists, status| {
        match QuotaUsage::of(status) {
            Some(quota) => lists.0.push(quota),
            None => lists.1.push(RateLevel::of(status)),
        }
        lists
    });
    let (tenant, plan) = (tenant.id.to_string(), tenant.plan.to_string());
    Ok(Some(TenantUsage { tenant, plan, at: Rfc3339(decision.at()).to_string(), quotas, rates }))
}

impl QuotaUsage {
    /// `None` if the limit is a rate.
    fn of(status: &LimitStatus) -> Option<Self> {
        let (limit, calendar) = (status.limit(), Calendar::of(status.limit())?);
        let window = calendar.window_at(status.at());
        Some(Self {
            name: status.name().to_string(),
            quota: limit.capacity().into(),
            used: (limit.capacity() - status.remaining() + status.owed()).into(),
            remaining: status.remaining().into(),
            per: calendar.period().to_string(),
            zone: calendar.zone_name().to_owned(),
            window_start: calendar.rfc3339(window.start),
            window_end: calendar.rfc3339(window.end),
        })
    }
}

impl RateLevel {
    fn of(status: &LimitStatus) -> Self {
        Self {
            name: status.name().to_string(),
            capacity: status.limit().capacity().into(),
            remaining: status.remaining().into(),
            owed: status.owed().into(),
            refill: refill(status.limit()),
            reset_after_ms: whole_ms(status.reset_after()),
        }
    }
}
