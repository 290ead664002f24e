//! The header fields of a limited response: `X-RateLimit-*`, the IETF's `RateLimit` pair and `Retry-After`.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use spile_core::{Decision, LimitStatus, Micros};

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");
static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static STATE: HeaderName = HeaderName::from_static("ratelimit");

/// Room for every value of a response with one limit.
const USUAL_BYTES: usize = 192;

/// Every field that says how a decision turned out. `wall` is what the caller's clock should say now.
pub(crate) fn of(decision: &Decision, wall: Micros) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    let mut values = Values(BytesMut::with_capacity(USUAL_BYTES));
    let binding = decision.binding();
    headers.insert(&LIMIT, values.number(u64::from(binding.limit().capacity())));
    headers.insert(&REMAINING, values.number(decision.remaining()));
    headers.insert(&RESET, values.number((wall + decision.reset_after()).epoch_secs_ceil()));
    headers.insert(&POLICY, values.policy(decision));
    headers.insert(&STATE, values.state(decision));
    if decision.degraded() {
        headers.insert(&DEGRADED, HeaderValue::from_static("true"));
    }
    if !decision.allowed() {
        headers.insert(RETRY_AFTER, values.number(retry_after_secs(decision)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers
}

/// The wait of a denial in whole seconds, rounded up and never zero: "retry at once" would be a lie.
pub(crate) fn retry_after_secs(decision: &Decision) -> u64 {
    secs_ceil(decision.retry_after()).max(1)
}

/// Writes values one behind the other into one allocation.
struct Values(BytesMut);

impl Values {
    fn number(&mut self, number: u64) -> HeaderValue {
        self.put_number(number);
        self.cut()
    }

    /// Each limit's quota and window. The window is left out where it is under a second, as the draft asks.
    fn policy(&mut self, decision: &Decision) -> HeaderValue {
        for (index, status) in decision.limits().iter().enumerate() {
            self.put_name(index, status);
            self.put_parameter(";q=", u64::from(status.limit().capacity()));
            let window = status.limit().fill_time();
            if window >= Duration::from_secs(1) {
                self.put_parameter(";w=", secs_ceil(window));
            }
        }
        self.cut()
    }

    /// What is left of each limit; on a denial only of those that denied, for `Retry-After` must not be earlier
    /// than any `t` beside it.
    fn state(&mut self, decision: &Decision) -> HeaderValue {
        let denied = !decision.allowed();
        let told = |status: &&LimitStatus| !denied || status.retry_after() > Duration::ZERO;
        let mut count = 0;
        for status in decision.limits().iter().filter(told) {
            self.put_name(count, status);
            self.put_parameter(";r=", status.remaining());
            let wait = if denied { status.retry_after() } else { status.reset_after() };
            self.put_parameter(";t=", secs_ceil(wait));
            count += 1;
        }
        if count == 0 {
            // The store could not be asked, so no limit denied: the binding one carries the policy's wait.
            self.put_name(0, decision.binding());
            self.put_parameter(";r=", decision.remaining());
            self.put_parameter(";t=", retry_after_secs(decision));
        }
        self.cut()
    }

    fn put_name(&mut self, index: usize, status: &LimitStatus) {
        self.0.put_slice(if index == 0 { b"\"" } else { b", \"" });
        self.0.put_slice(status.name().as_str().as_bytes());
        self.0.put_u8(b'"');
    }

    fn put_parameter(&mut self, name: &str, number: u64) {
        self.0.put_slice(name.as_bytes());
        self.put_number(number);
    }

    fn put_number(&mut self, number: u64) {
        self.0.put_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn cut(&mut self) -> HeaderValue {
        let value: Bytes = self.0.split().freeze();
        HeaderValue::from_maybe_shared(value).expect("names and digits are printable ASCII")
    }
}

fn secs_ceil(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}
