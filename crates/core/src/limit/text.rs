//! Limits as text: `100/min`, or `10, 1/s` for a burst that differs from the refill.

use std::str::FromStr;
use std::time::Duration;

use crate::{Amount, Limit, LimitError, RateBuilder};

impl FromStr for Limit {
    type Err = LimitTextError;

    /// Reads `REFILL/PERIOD` or `CAPACITY, REFILL/PERIOD`; the period is a unit (`s`, `min`, `h`, `day` and
    /// their long forms, `ms`, `us`) with an optional count: `5/10s`.
    fn from_str(text: &str) -> Result<Self, LimitTextError> {
        let (capacity, refill) =
            text.split_once(',').map_or((None, text), |(capacity, rate)| (Some(capacity), rate));
        let builder = rate(refill).and_then(|builder| match capacity {
            Some(capacity) => Some(builder.burst(amount(capacity)?)),
            None => Some(builder),
        });
        let builder = builder.ok_or_else(|| unreadable(text))?;
        builder.build().map_err(|why| LimitTextError::OutOfBounds { text: text.to_owned(), why })
    }
}

impl FromStr for RateBuilder {
    type Err = LimitTextError;

    /// Reads `REFILL/PERIOD`, as in `1/s` or `5/10s`. [`build`](RateBuilder::build) checks the numbers.
    fn from_str(text: &str) -> Result<Self, LimitTextError> {
        rate(text).ok_or_else(|| unreadable(text))
    }
}

fn rate(text: &str) -> Option<RateBuilder> {
    let (tokens, period) = text.split_once('/')?;
    Some(Limit::per(amount(tokens)?, period_from(period.trim())?))
}

fn amount(text: &str) -> Option<Amount> {
    text.trim().parse().ok()
}

fn period_from(period: &str) -> Option<Duration> {
    let digits = period.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = period.split_at(digits);
    let count: u64 = if count.is_empty() { 1 } else { count.parse().ok()? };
    let unit_us: u64 = match unit.trim() {
        "us" => 1,
        "ms" => 1_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hr" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ => return None,
    };
    count.checked_mul(unit_us).map(Duration::from_micros)
}

fn unreadable(text: &str) -> LimitTextError {
    LimitTextError::Unreadable(text.to_owned())
}

/// Why a text is not a limit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitTextError {
    /// The text does not have the form of a limit.
    #[error("`{0}` is not a rate: write tokens per period, as in `1/s`, `100/min`, `5/10s` or `10000/day`")]
    Unreadable(String),
    /// The text has the form of a limit, but its numbers are out of bounds.
    #[error("`{text}` is out of bounds: {why}")]
    OutOfBounds {
        /// The text.
        text: String,
        /// The bound that it breaks.
        why: LimitError,
    },
}
