//! Where windows start within the calendar, as an operator writes it.

use std::fmt;

use crate::period::Period;

/// An anchor as configuration writes it. Its meaning depends on the period:
///
/// | period | anchor | default |
/// |---|---|---|
/// | day | an hour, `0` to `23` | `0` |
/// | week | a weekday, `"mon"` to `"sun"` or `"monday"` to `"sunday"` | `"mon"` |
/// | month | a day, `1` to `31`; a month with fewer days starts on its last | `1` |
/// | year | a month and a day, `"01-01"` to `"12-31"`; `"02-29"` is the 28th in a common year | `"01-01"` |
///
/// A minute or an hour has no anchor.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Anchor {
    /// An hour or a day of the month.
    Number(i64),
    /// A weekday, or a month and a day.
    Text(String),
}

impl From<i64> for Anchor {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// Reads digits as a number, because an environment variable cannot mark one.
impl From<&str> for Anchor {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Number)
    }
}

impl From<String> for Anchor {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// Prints as configuration spells it: a text in quotes, a number without.
impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// An anchor that does not exist for its period.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("anchor = {anchor}: {}", bound(*.period))]
pub struct AnchorError {
    pub(crate) anchor: Anchor,
    pub(crate) period: Period,
}

/// The valid anchors of this period.
const fn bound(period: Period) -> &'static str {
    match period {
        Period::Minute => "a minute has no anchor",
        Period::Hour => "an hour has no anchor",
        Period::Day => "a day has hours 0 to 23",
        Period::Week => "a week starts on a weekday, \"mon\" to \"sun\"",
        Period::Month => "a month has days 1 to 31",
        Period::Year => "a year starts on a month and a day that exists, \"01-01\" to \"12-31\"",
    }
}
