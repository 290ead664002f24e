//! The header fields of every limited response.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use spile_core::{Decision, LimitStatus, Micros, Reason};

use super::text::HeaderText;
use super::{reset_after, reset_at, retry_after_secs, secs_ceil};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// The greatest integer of a structured field: fifteen digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Writes the default [`HeaderFields`] of the decision.
pub fn write_fields(decision: &Decision, now: Micros, headers: &mut HeaderMap) {
    HeaderFields::default().write(decision, now, headers);
}

/// The origin of `X-RateLimit-Reset`.
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
/// `RateLimit-Policy` and `RateLimit` for each limit of the chain, `X-RateLimit-Degraded` if the store did not
/// decide, and on a refusal `Retry-After` and `Cache-Control: no-store`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeaderFields {
    x_ratelimit: bool,
    ietf: bool,
    reset: Reset,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: true, reset: Reset::Epoch }
    }
}

impl HeaderFields {
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

    /// The origin of `X-RateLimit-Reset`.
    #[must_use]
    pub const fn reset(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Writes the fields of a decision made at `now`.
    ///
    /// If another layer has already written some, the fields show the limit that leaves less, and the lists of the IETF
    /// fields name both.
    pub fn write(&self, decision: &Decision, now: Micros, headers: &mut HeaderMap) {
        self.render(decision, now).write(headers);
    }

    /// The values of the fields, to be written when there is a response.
    pub(crate) fn render(self, decision: &Decision, now: Micros) -> Rendered {
        let remaining = decision.remaining().whole_tokens();
        let mut text = HeaderText::new();
        let mut ends = [0; 6];
        if self.x_ratelimit {
            text.integer(decision.binding().limit().capacity().whole_tokens());
            ends[0] = text.len();
            text.integer(remaining);
            ends[1] = text.len();
            text.integer(self.reset_value(decision, now));
        }
        ends[2] = text.len();
        if self.ietf {
            list(&mut text, decision, policy);
            ends[3] = text.len();
            list(&mut text, decision, |status, text| state(decision, status, text));
        }
        ends[4] = text.len();
        let refused = retry_after_secs(decision);
        if let Some(seconds) = refused {
            text.integer(seconds);
        }
        ends[5] = text.len();
        let (text, degraded) = (text.into_bytes(), decision.degraded());
        Rendered { text, ends, remaining, fields: self, refused: refused.is_some(), degraded }
    }

    fn reset_value(self, decision: &Decision, now: Micros) -> u64 {
        match self.reset {
            Reset::Epoch => reset_at(decision, now).epoch_secs_ceil(),
            Reset::Delta => secs_ceil(reset_after(decision)),
        }
    }
}

/// The values of a decision's fields, in one piece of text.
pub(crate) struct Rendered {
    text: Bytes,
    /// Where each value ends: limit, remaining, reset, policy, state, retry-after. The longest chain with the longest
    /// names takes some ten thousand bytes.
    ends: [u16; 6],
    remaining: u64,
    fields: HeaderFields,
    refused: bool,
    degraded: bool,
}

impl Rendered {
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        // Room for these and for what the server adds, reserved once while there is little to move.
        headers.reserve(7);
        let text = &self.text;
        let [limit, remaining, reset, policy, state, retry_after] = self.ends;
        let value = |from: u16, to: u16| cut(text, from.into(), to.into());
        if self.fields.x_ratelimit && !leaves_less(headers, self.remaining) {
            headers.insert(LIMIT, value(0, limit));
            headers.insert(REMAINING, value(limit, remaining));
            headers.insert(RESET, value(remaining, reset));
        }
        if self.fields.ietf {
            headers.append(POLICY, value(reset, policy));
            headers.append(STATE, value(policy, state));
        }
        if self.degraded {
            headers.insert(DEGRADED, HeaderValue::from_static("true"));
        }
        if self.refused {
            headers.insert(RETRY_AFTER, value(state, retry_after));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }
}

fn cut(text: &Bytes, from: usize, to: usize) -> HeaderValue {
    // Only digits, names and punctuation are written, and all of them are valid.
    HeaderValue::from_maybe_shared(text.slice(from..to)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// True if the headers already name a limit that leaves the caller less than this.
fn leaves_less(headers: &HeaderMap, remaining: u64) -> bool {
    // A limit takes three fields. Counting them is cheaper than looking a name up.
    if headers.len() < 3 {
        return false;
    }
    let told = headers.get(REMAINING).and_then(|value| value.to_str().ok());
    told.and_then(|text| text.parse::<u64>().ok()).is_some_and(|told| told <= remaining)
}

fn parameter(text: &mut HeaderText, name: &[u8], number: u64) {
    text.push(name);
    text.integer(number.min(MAX_INTEGER));
}

/// `"gold/burst";q=100;w=2`: at most `q` at once, and all of it back within `w` seconds. A window of less than
/// a second cannot be written, and is left out.
///
/// `"gold/jobs";q=5;qu="concurrent-requests"`: at most `q` requests at work. They come back when they end, in no window.
fn policy(status: &LimitStatus, text: &mut HeaderText) {
    let limit = status.limit();
    parameter(text, b";q=", limit.capacity().whole_tokens());
    if limit.is_concurrency() {
        return text.push(b";qu=\"concurrent-requests\"");
    }
    let window = status.window();
    if window.as_secs() >= 1 {
        parameter(text, b";w=", secs_ceil(window));
    }
}

/// `"gold/burst";r=73;t=1`: `r` tokens left; `t` seconds until the cost is there after a refusal, else until the bucket is full.
///
/// A refusal gives a time only for the limits that refused: `Retry-After` must not come before any `t`. A concurrency has no
/// `t`: when a request ends is not known.
fn state(decision: &Decision, status: &LimitStatus, text: &mut HeaderText) {
    if decision.reason() == Reason::FailClosed {
        parameter(text, b";r=", 0);
        return parameter(text, b";t=", retry_after_secs(decision).unwrap_or(1));
    }
    parameter(text, b";r=", status.remaining().whole_tokens());
    if status.limit().is_concurrency() {
        return;
    }
    if decision.allowed() {
        parameter(text, b";t=", secs_ceil(status.reset_after()));
    } else if !status.retry_after().is_zero() {
        parameter(text, b";t=", secs_ceil(status.retry_after()));
    }
}

fn list(text: &mut HeaderText, decision: &Decision, item: impl Fn(&LimitStatus, &mut HeaderText)) {
    for (index, status) in decision.limits().iter().enumerate() {
        if index > 0 {
            text.push(b", ");
        }
        text.push(b"\"");
        // Names are letters, digits and `._-/`: nothing in them needs escaping.
        text.push(status.name().as_bytes());
        text.push(b"\"");
        item(status, text);
    }
}
