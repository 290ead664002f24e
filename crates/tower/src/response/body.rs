//! The bodies of 429 and 503: a problem of RFC 9457, with the plain fields that clients look for.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use spile_core::{Decision, LimitStatus, Micros, Reason};

use super::timestamp::Rfc3339;
use super::{HeaderFields, reset_at, retry_after_secs, status};

/// The message to callers who are refused because the store failed.
pub const UNAVAILABLE: &str = "Service temporarily unavailable (rate limiter backend error)";

/// The media type of every body written here.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The whole answer to a request that was refused at `now`: status, header fields and body.
pub fn refusal(decision: &Decision, now: Micros) -> Response<Bytes> {
    HeaderFields::default().refusal(decision, now)
}

impl HeaderFields {
    /// The whole answer to a request that was refused at `now`, with these fields.
    pub fn refusal(&self, decision: &Decision, now: Micros) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(body(decision, now)));
        *response.status_mut() = status(decision);
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        self.write(decision, now, response.headers_mut());
        response
    }
}

/// The body of a refusal, as JSON.
pub fn body(decision: &Decision, now: Micros) -> String {
    if decision.reason() == Reason::FailClosed { unavailable() } else { exceeded(decision, now) }
}

fn exceeded(decision: &Decision, now: Micros) -> String {
    let message = retry_message(decision);
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Rate limit exceeded\",\"status\":429,\"detail\":\"{message}\",\
         \"violated-policies\":[{violated}],\
         \"error\":\"Rate limit exceeded\",\"message\":\"{message}\",\
         \"limit\":{limit},\"remaining\":{remaining},\"resetAt\":\"{reset_at}\"}}",
        violated = violated_policies(decision),
        limit = decision.binding().limit().capacity(),
        remaining = decision.remaining(),
        reset_at = Rfc3339(reset_at(decision, now)),
    )
}

fn unavailable() -> String {
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
         \"title\":\"Service temporarily unavailable\",\"status\":503,\"detail\":\"{UNAVAILABLE}\",\
         \"error\":\"Service temporarily unavailable\",\"message\":\"{UNAVAILABLE}\"}}"
    )
}

/// The limit that was exceeded, and how long to wait, in words.
pub(super) fn retry_message(decision: &Decision) -> String {
    let limit = decision.binding().limit();
    let too_many = if limit.is_concurrency() {
        Cow::from(format!("Too many requests at once: the concurrency limit is {}.", limit.capacity()))
    } else {
        Cow::from("Too many requests.")
    };
    match retry_after_secs(decision).unwrap_or(1) {
        1 => format!("{too_many} Please retry after 1 second."),
        seconds => format!("{too_many} Please retry after {seconds} seconds."),
    }
}

/// The limits that refused. Names are letters, digits and `._-/`: nothing in them needs escaping.
fn violated_policies(decision: &Decision) -> String {
    let refused = |status: &&LimitStatus| !status.retry_after().is_zero();
    let quoted = |status: &LimitStatus| format!("\"{}\"", status.name());
    let names: Vec<_> = decision.limits().iter().filter(refused).map(quoted).collect();
    names.join(",")
}
