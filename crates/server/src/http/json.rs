//! Writes decisions as JSON straight into a buffer, because this is the service's most frequent work.
//!
//! Names of limits consist of letters, digits and `._-/`, so nothing here needs escaping.

use std::collections::BTreeMap;
use std::time::Duration;

use spile_core::{Amount, Decision, LimitStatus, Micros};
use spile_limiter::{EnforcedDecision, Ruling, Settled};

/// A decision about a request to which no limit applies, without the brace that closes it.
const UNLIMITED: &str = concat!(
    r#"{"allowed":true,"limit":null,"remaining":null,"retryAfterMs":0,"resetAfterMs":0,"limitedBy":null,"#,
    r#""reason":"unlimited","degraded":false,"at":null,"limits":[]"#
);

/// Appends the decision in the shape that `POST /v1/check` answers with.
pub(crate) fn write_decision(out: &mut Vec<u8>, ruling: &Ruling) {
    write_ruling(out, ruling, Decision::charged_at);
}

/// Appends a decision that has charged nothing, in the same shape.
pub(crate) fn write_status(out: &mut Vec<u8>, ruling: &Ruling) {
    write_ruling(out, ruling, |_| None);
}

fn write_ruling(out: &mut Vec<u8>, ruling: &Ruling, charged_at: fn(&Decision) -> Option<Micros>) {
    match &ruling.enforced {
        EnforcedDecision::Decided(decision) => write_limited(out, decision, charged_at(decision)),
        EnforcedDecision::Unlimited => text(out, UNLIMITED),
    }
    if let Some(watched) = ruling.shadow.first() {
        // Ids of rules consist of the same characters as names of limits.
        quoted(out, ",\"shadow\":{\"ruleId\":", &watched.rule);
        text(out, if watched.would_allow() { ",\"allowed\":true" } else { ",\"allowed\":false" });
        match watched.limited_by() {
            Some(name) => quoted(out, ",\"limitedBy\":", name),
            None => text(out, ",\"limitedBy\":null"),
        }
        number(out, ",\"retryAfterMs\":", ms_ceil(watched.retry_after()));
        text(out, "}");
    }
    text(out, "}");
}

/// Appends a decision without the brace that closes it.
fn write_limited(out: &mut Vec<u8>, decision: &Decision, charged_at: Option<Micros>) {
    let binding = decision.binding();
    text(out, if decision.allowed() { "{\"allowed\":true" } else { "{\"allowed\":false" });
    amount(out, ",\"limit\":", binding.limit().capacity());
    amount(out, ",\"remaining\":", decision.remaining());
    number(out, ",\"retryAfterMs\":", ms_ceil(decision.retry_after()));
    number(out, ",\"resetAfterMs\":", ms_ceil(decision.reset_after()));
    match decision.limited_by() {
        Some(name) => quoted(out, ",\"limitedBy\":", name.as_str()),
        None => text(out, ",\"limitedBy\":null"),
    }
    quoted(out, ",\"reason\":", decision.reason().as_str());
    text(out, if decision.degraded() { ",\"degraded\":true" } else { ",\"degraded\":false" });
    match charged_at {
        Some(at) => number(out, ",\"at\":", at.get()),
        None => text(out, ",\"at\":null"),
    }
    text(out, ",\"limits\":[");
    for (index, status) in decision.limits().iter().enumerate() {
        text(out, if index == 0 { "" } else { "," });
        write_limit(out, status);
    }
    text(out, "]");
}

/// Appends the decision in the shape that `POST /v1/refund` answers with.
pub(crate) fn write_refund(out: &mut Vec<u8>, ruling: &Ruling, given: bool) {
    text(out, if given { "{\"refunded\":true" } else { "{\"refunded\":false" });
    write_members(out, ruling, |_| None);
}

/// Appends the decision in the shape that `POST /v1/charge` answers with.
pub(crate) fn write_charge(out: &mut Vec<u8>, ruling: &Ruling, uncovered: Amount) {
    amount(out, "{\"uncovered\":", uncovered);
    write_members(out, ruling, Decision::charged_at);
}

/// Appends the decision in the shape that `POST /v1/reserve` answers with. An id is of letters, digits, `-` and `_`.
pub(crate) fn write_reservation(out: &mut Vec<u8>, ruling: &Ruling, id: Option<&str>) {
    match id {
        Some(id) => quoted(out, "{\"id\":", id),
        None => text(out, "{\"id\":null"),
    }
    write_members(out, ruling, Decision::charged_at);
}

/// Appends the decision in the shape that `POST /v1/settle` answers with.
pub(crate) fn write_settled(out: &mut Vec<u8>, ruling: &Ruling, settled: &Settled) {
    text(out, if settled.already { "{\"settled\":false" } else { "{\"settled\":true" });
    amount(out, ",\"uncovered\":", settled.uncovered);
    text(out, ",\"costs\":{");
    // Several keys may have a limit of one name: the largest amount is reported.
    let mut costs: BTreeMap<&str, Amount> = BTreeMap::new();
    for (name, cost) in &settled.costs {
        let largest = costs.entry(name.unshadowed()).or_default();
        *largest = (*largest).max(*cost);
    }
    for (index, (name, cost)) in costs.into_iter().enumerate() {
        quoted(out, if index == 0 { "" } else { "," }, name);
        amount(out, ":", cost);
    }
    text(out, "}");
    write_members(out, ruling, |_| None);
}

/// Appends the decision in the shape that `POST /v1/acquire` answers with: the permit and its hold time, if there is one. A permit
/// is of letters, digits, `-` and `_`.
pub(crate) fn write_acquired(out: &mut Vec<u8>, ruling: &Ruling, permit: Option<(&str, Duration)>) {
    match permit {
        Some((permit, hold)) => {
            quoted(out, "{\"permit\":", permit);
            number(out, ",\"holdMs\":", ms_floor(hold));
            number(out, ",\"renewAfterMs\":", ms_floor(hold / 3));
        }
        None => text(out, "{\"permit\":null,\"holdMs\":null,\"renewAfterMs\":null"),
    }
    write_members(out, ruling, Decision::charged_at);
}

/// Appends the answer of `POST /v1/renew`.
pub(crate) fn write_renewed(out: &mut Vec<u8>, hold: Duration) {
    number(out, "{\"renewed\":true,\"holdMs\":", ms_floor(hold));
    number(out, ",\"renewAfterMs\":", ms_floor(hold / 3));
    text(out, "}");
}

/// Appends the answer of `POST /v1/release`.
pub(crate) fn write_released(out: &mut Vec<u8>, released: bool) {
    text(out, if released { "{\"released\":true}" } else { "{\"released\":false}" });
}

/// Appends the members of a decision to an object that has been opened and has members.
fn write_members(out: &mut Vec<u8>, ruling: &Ruling, charged_at: fn(&Decision) -> Option<Micros>) {
    let start = out.len();
    write_ruling(out, ruling, charged_at);
    // Replaces the brace that opened the decision.
    out[start] = b',';
}

fn write_limit(out: &mut Vec<u8>, status: &LimitStatus) {
    quoted(out, "{\"name\":", status.name().as_str());
    amount(out, ",\"limit\":", status.limit().capacity());
    amount(out, ",\"remaining\":", status.remaining());
    number(out, ",\"retryAfterMs\":", ms_ceil(status.retry_after()));
    number(out, ",\"resetAfterMs\":", ms_ceil(status.reset_after()));
    text(out, "}");
}

/// Rounded up, so that a caller who waits that long is admitted.
fn ms_ceil(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Rounded down, so that a renewal within that time is not late.
pub(crate) fn ms_floor(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, label: &str, number: u64) {
    text(out, label);
    text(out, itoa::Buffer::new().format(number));
}

/// Appends a number of tokens, exactly. A whole one has no point.
fn amount(out: &mut Vec<u8>, label: &str, amount: Amount) {
    if amount.micro() % Amount::MICRO_PER_TOKEN == 0 {
        text(out, label);
        text(out, itoa::Buffer::new().format(amount.micro() / Amount::MICRO_PER_TOKEN));
    } else {
        text(out, label);
        text(out, &amount.to_string());
    }
}

fn quoted(out: &mut Vec<u8>, label: &str, value: &str) {
    text(out, label);
    text(out, "\"");
    text(out, value);
    text(out, "\"");
}
