//! The cost of an answer: where a response reports it, and how it is read while the response passes.
//!
//! A [`CostSource`] names the place: a header field, a number in a JSON body, or the same in server-sent events. A
//! [`CostReader`] looks at the bytes of the body as they pass. It never buffers more than one key of JSON. An
//! [`Estimate`] is charged before the cost is known. An [`UnreadCost`] prices an answer that reports none, and an [`ErrorCost`] one that
//! is an error. This module must not know who pays.

mod body;
mod estimate;
mod events;
mod json;
mod meter;
mod pointer;
mod reader;
mod source;
mod unread;

use spile_core::{Amount, AmountTextError};

pub use self::body::MeteredBody;
pub use self::estimate::{Estimate, EstimateError};
pub use self::meter::{AnswerUsage, CostMeter, SettleFuture};
pub use self::pointer::{JsonPointer, JsonPointerError};
pub use self::reader::{CostReader, ReportedCost};
pub use self::source::{CostSource, CostSourceError};
pub use self::unread::{BytesPerToken, ErrorCost, FallbackCostError, UnreadCost};

/// The amount in a text. A number that is too large becomes the largest amount. `None` if the text is not an amount.
fn parse_amount(text: &str) -> Option<Amount> {
    match text.trim().parse() {
        Ok(amount) => Some(amount),
        Err(AmountTextError::TooLarge) => Some(Amount::from(u64::MAX)),
        Err(_) => None,
    }
}

/// The number in a text of digits, at most `u64::MAX`. `None` if the text is not a whole number.
fn parse_count(text: &str) -> Option<u64> {
    let digits = text.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}
