//! A decision as Envoy reads it: a code, a status for each descriptor, and header fields for the client.

use std::time::Duration;

use http::HeaderMap;
use spile_core::{Amount, Decision, Limit, LimitStatus, Micros, Reason, Shape};
use spile_policy::Chain;
use spile_tower::response::HeaderFields;

use super::message::{Code, CurrentLimit, DescriptorStatus, HeaderValue, TimeUnit};

/// The units in which a limit is reported, the shortest first.
const UNITS: [TimeUnit; 5] =
    [TimeUnit::Second, TimeUnit::Minute, TimeUnit::Hour, TimeUnit::Day, TimeUnit::Week];

/// The status of a descriptor that nothing limits.
pub(super) fn unlimited() -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() }
}

/// The status of a descriptor whose buckets are these, by the decision about the whole chain.
pub(super) fn status(chain: &Chain, places: &[usize], decision: &Decision) -> DescriptorStatus {
    match places.iter().find(|place| chain.buckets()[**place].can_never_pass()) {
        Some(&never) => told(&decision.limits()[never], true, decision),
        None => binding(|| places.iter().map(|&place| &decision.limits()[place]), decision),
    }
}

/// The status of a descriptor that was decided by itself.
pub(super) fn status_alone(decision: &Decision) -> DescriptorStatus {
    binding(|| decision.limits().iter(), decision)
}

/// The status of a descriptor whose hits had been used already: over the limit if more was used than was available.
pub(super) fn status_late(decision: &Decision) -> DescriptorStatus {
    match decision
        .limits()
        .iter()
        .max_by_key(|limit| limit.owed())
        .filter(|limit| limit.owed() > Amount::ZERO)
    {
        Some(limit) => told(limit, true, decision),
        None => status_alone(decision),
    }
}

/// The status by the limit that binds among these.
fn binding<'d, I>(limits: impl Fn() -> I, decision: &Decision) -> DescriptorStatus
where
    I: Iterator<Item = &'d LimitStatus>,
{
    let refused = decision.reason() == Reason::FailClosed;
    let over = |limit: &&LimitStatus| !decision.allowed() && (refused || !limit.retry_after().is_zero());
    let is_over = limits().any(|limit| over(&limit));
    let concerned = || limits().filter(|limit| !is_over || over(limit));
    match concerned().nth(LimitStatus::binding(concerned(), !is_over)) {
        Some(limit) => told(limit, is_over, decision),
        None => unlimited(),
    }
}

/// The header fields for the client.
pub(super) fn headers(decision: &Decision, wall: Micros, shown: HeaderFields) -> Vec<HeaderValue> {
    let mut fields = HeaderMap::new();
    shown.write(decision, wall, &mut fields);
    let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = value.to_str().ok()?.to_owned();
        Some(HeaderValue { key: name.as_str().to_owned(), value })
    };
    fields.iter().filter_map(pair).collect()
}

fn told(status: &LimitStatus, over: bool, decision: &Decision) -> DescriptorStatus {
    let (requests_per_unit, unit) = per_unit(status.limit());
    let reset = match decision.reason() {
        Reason::FailClosed => decision.retry_after(),
        _ if over && !decision.allowed() => status.retry_after(),
        _ => status.reset_after(),
    };
    DescriptorStatus {
        code: if over { Code::OverLimit } else { Code::Ok }.into(),
        current_limit: Some(CurrentLimit {
            requests_per_unit,
            unit: unit.into(),
            name: status.name().to_string(),
        }),
        limit_remaining: whole(status.remaining()),
        duration_until_reset: Some(span(reset)),
    }
}

/// Tokens in the shortest unit of time that gives a whole number, or the refill itself if no unit does. A number that is not whole is
/// rounded down.
fn per_unit(limit: &Limit) -> (u32, TimeUnit) {
    let rate = match limit.shape() {
        Shape::Rate(rate) => rate,
        Shape::Quota(quota) => {
            let period = quota.windows().period().as_secs();
            let unit = match period / 86_400 {
                30 => Some(TimeUnit::Month),
                365 => Some(TimeUnit::Year),
                _ => UNITS.into_iter().find(|unit| unit.seconds() == Some(period)),
            };
            return (whole(limit.capacity()), unit.unwrap_or(TimeUnit::Unknown));
        }
        Shape::Concurrency(_) => return (whole(limit.capacity()), TimeUnit::Unknown),
    };
    let (refill, period_us) = (u128::from(rate.refill().micro().unsigned_abs()), rate.period().as_micros());
    let in_unit = |unit: TimeUnit| {
        // Micro-tokens in a period of microseconds are tokens per second.
        let (scaled, divisor) = (refill * u128::from(unit.seconds()?), period_us);
        let whole = scaled.is_multiple_of(divisor).then_some(scaled / divisor)?;
        Some((u32::try_from(whole).ok()?, unit))
    };
    UNITS.into_iter().find_map(in_unit).unwrap_or((whole(rate.refill()), TimeUnit::Unknown))
}

fn whole(amount: Amount) -> u32 {
    u32::try_from(amount.whole_tokens()).unwrap_or(u32::MAX)
}

fn span(span: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: span.subsec_nanos().cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_in_the_unit_that_fits_it() {
        let table = [
            (Limit::per_second(5), (5, TimeUnit::Second)),
            (Limit::per_minute(60), (1, TimeUnit::Second)),
            (Limit::per_minute(5), (5, TimeUnit::Minute)),
            (Limit::per(30, Duration::from_secs(10)), (3, TimeUnit::Second)),
            (Limit::per_day(10_000), (10_000, TimeUnit::Day)),
            (Limit::per(1, Duration::from_secs(604_800)), (1, TimeUnit::Week)),
            (Limit::per(1, Duration::from_secs(777_777)), (1, TimeUnit::Unknown)),
        ];
        for (limit, told) in table {
            let limit = limit.build().expect("within bounds");
            assert_eq!(per_unit(&limit), told, "{limit}");
        }
    }
}
