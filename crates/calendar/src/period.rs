//! The length of a window, as a word of the calendar.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The length of a quota's windows: `per = "month"`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Period {
    /// From one full minute to the next.
    Minute,
    /// From one full hour to the next.
    Hour,
    /// From midnight, or from the hour that is the anchor.
    Day,
    /// From Monday, or from the weekday that is the anchor.
    Week,
    /// From the first day, or from the day of the month that is the anchor.
    Month,
    /// From 1 January, or from the month and day that are the anchor.
    Year,
}

impl Period {
    /// Every period, the shortest first.
    pub const ALL: [Self; 6] = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The names in configuration, in the same order.
    const NAMES: [&str; 6] = ["minute", "hour", "day", "week", "month", "year"];
    const SECONDS: [u64; 6] = [60, 3_600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400];

    /// Its length; the average for a month and a year.
    pub const fn length(self) -> Duration {
        Duration::from_secs(Self::SECONDS[self as usize])
    }

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Period {
    type Err = UnknownPeriod;

    fn from_str(word: &str) -> Result<Self, UnknownPeriod> {
        let found = Self::ALL.into_iter().find(|period| period.as_str() == word);
        found.ok_or_else(|| UnknownPeriod(word.to_owned()))
    }
}

/// A word that is not a period.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a period: write `minute`, `hour`, `day`, `week`, `month` or `year`")]
pub struct UnknownPeriod(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_read_as_it_is_written() {
        for period in Period::ALL {
            assert_eq!(period.to_string().parse(), Ok(period));
        }
    }

    #[test]
    fn a_word_that_is_not_a_period_is_named_with_those_that_are() {
        for word in ["fortnight", "Month", "months", "", "day "] {
            let why = word.parse::<Period>().expect_err(word).to_string();
            let rest = "is not a period: write `minute`, `hour`, `day`, `week`, `month` or `year`";
            assert_eq!(why, format!("`{word}` {rest}"));
        }
    }
}
