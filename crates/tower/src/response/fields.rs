//! The header fields of every limited response.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use spile_core::{Decision, LimitStatus, Micros, Reason};

use super::{reset_after, reset_at, retry_after_secs, secs_ceil};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// The greatest integer of a structured field: fifteen digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Writes the default [`Fields`] of the decision.
pub fn write_fields(decision: &Decision, now: Micros, headers: &mut HeaderMap) {
    Fields::default().write(decision, now, headers);
}

/// What `X-RateLimit-Reset` counts from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reset {
    /// The Unix epoch: a moment.
    #[default]
    Epoch,
    /// Now: a span of time.
    Delta,
}

/// Which header fields a response carries.
///
/// By default all of them: `X-RateLimit-Limit`, `-Remaining` and `-Reset` for the limit that binds,
/// `RateLimit-Policy` and `RateLimit` for each limit of the chain, `X-RateLimit-Degraded` where the store was not
/// the one to decide, and on a refusal `Retry-After` and `Cache-Control: no-store`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fields {
    x_ratelimit: bool,
    ietf: bool,
    reset: Reset,
}

impl Default for Fields {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: true, reset: Reset::Epoch }
    }
}

impl Fields {
    /// Whether to send `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    #[must_use]
    pub const fn x_ratelimit(mut self, send: bool) -> Self {
        self.x_ratelimit = send;
        self
    }

    /// Whether to send the IETF's `RateLimit-Policy` and `RateLimit`.
    #[must_use]
    pub const fn ietf(mut self, send: bool) -> Self {
        self.ietf = send;
        self
    }

    /// What `X-RateLimit-Reset` counts from.
    #[must_use]
    pub const fn reset(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Writes the fields of a decision made at `now`.
    ///
    /// Where another layer has already written some, the caller is told of whichever limit leaves them less,
    /// and the lists of the IETF fields name both.
    pub fn write(&self, decision: &Decision, now: Micros, headers: &mut HeaderMap) {
        // All values are cut from one buffer: one trip to the allocator in place of five.
        let mut values = Values(BytesMut::with_capacity(48 + 96 * decision.limits().len()));
        if self.x_ratelimit && !leaves_less(headers, decision) {
            headers.insert(LIMIT, values.integer(u64::from(decision.binding().limit().capacity())));
            headers.insert(REMAINING, values.integer(decision.remaining()));
            headers.insert(RESET, values.integer(self.reset_value(decision, now)));
        }
        if self.ietf {
            headers.append(POLICY, values.list(decision, policy));
            headers.append(STATE, values.list(decision, |status, value| state(decision, status, value)));
        }
        if decision.degraded() {
            headers.insert(DEGRADED, HeaderValue::from_static("true"));
        }
        if let Some(seconds) = retry_after_secs(decision) {
            headers.insert(RETRY_AFTER, values.integer(seconds));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }

    fn reset_value(self, decision: &Decision, now: Micros) -> u64 {
        match self.reset {
            Reset::Epoch => reset_at(decision, now).epoch_secs_ceil(),
            Reset::Delta => secs_ceil(reset_after(decision)),
        }
    }
}

/// Whether the headers already tell of a limit that leaves the caller less than this decision does.
fn leaves_less(headers: &HeaderMap, decision: &Decision) -> bool {
    let told = headers.get(REMAINING).and_then(|value| value.to_str().ok());
    told.and_then(|text| text.parse::<u64>().ok()).is_some_and(|told| told <= decision.remaining())
}

/// `"gold/burst";q=100;w=2`: at most `q` at once, and all of it back within `w` seconds. A window of less than
/// a second cannot be written, and is left out.
fn policy(status: &LimitStatus, value: &mut BytesMut) {
    let limit = status.limit();
    parameter(value, b";q=", u64::from(limit.capacity()));
    let window = limit.fill_time();
    if window.as_secs() >= 1 {
        parameter(value, b";w=", secs_ceil(window));
    }
}

/// `"gold/burst";r=73;t=1`: `r` tokens left; `t` seconds until the cost is there, or until all of it is.
///
/// A refusal gives a time only for the limits that refused: `Retry-After` must not come before any `t`.
fn state(decision: &Decision, status: &LimitStatus, value: &mut BytesMut) {
    if decision.reason() == Reason::FailClosed {
        parameter(value, b";r=", 0);
        return parameter(value, b";t=", retry_after_secs(decision).unwrap_or(1));
    }
    parameter(value, b";r=", status.remaining());
    if decision.allowed() {
        parameter(value, b";t=", secs_ceil(status.reset_after()));
    } else if !status.retry_after().is_zero() {
        parameter(value, b";t=", secs_ceil(status.retry_after()));
    }
}

fn parameter(value: &mut BytesMut, name: &[u8], number: u64) {
    value.put_slice(name);
    value.put_slice(itoa::Buffer::new().format(number.min(MAX_INTEGER)).as_bytes());
}

/// Header values that share one buffer.
struct Values(BytesMut);

impl Values {
    fn integer(&mut self, number: u64) -> HeaderValue {
        self.0.put_slice(itoa::Buffer::new().format(number).as_bytes());
        self.cut()
    }

    fn list(&mut self, decision: &Decision, item: impl Fn(&LimitStatus, &mut BytesMut)) -> HeaderValue {
        for (index, status) in decision.limits().iter().enumerate() {
            self.0.put_slice(if index == 0 { b"\"" } else { b", \"" });
            // Names are letters, digits and `._-/`: nothing in them needs escaping.
            self.0.put_slice(status.name().as_str().as_bytes());
            self.0.put_slice(b"\"");
            item(status, &mut self.0);
        }
        self.cut()
    }

    fn cut(&mut self) -> HeaderValue {
        let value: Bytes = self.0.split().freeze();
        // Digits, names and punctuation are all that is ever written, and all of it is valid.
        HeaderValue::from_maybe_shared(value).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}
