//! Dates and times in UTC, as access logs write them.

use std::io::Write;

use spile_core::Micros;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_S: u64 = 86_400;

/// A moment in UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Timestamp {
    year: u64,
    /// 1 to 12.
    month: usize,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    micros: u64,
}

impl Timestamp {
    /// The time this long after 1970-01-01.
    pub(super) fn of(wall: Micros) -> Self {
        let (seconds, micros) = (wall.get() / 1_000_000, wall.get() % 1_000_000);
        let (days, of_day) = (seconds / DAY_S, seconds % DAY_S);
        // Years begin in March here, so that a leap day is the last day of its year. Days count from 0000-03-01.
        let days = days + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month: month as usize,
            day: of_year - (153 * march_month + 2) / 5 + 1,
            hour: of_day / 3_600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            micros,
        }
    }

    /// `16/Nov/2026:13:26:27 +0000`
    pub(super) fn write_common(self, to: &mut Vec<u8>) {
        let Self { year, month, day, hour, minute, second, .. } = self;
        let month = MONTHS[month - 1];
        // Writing to memory does not fail.
        let _written = write!(to, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000");
    }

    /// `2026-11-16T13:26:27.123456Z`
    pub(super) fn write_rfc3339(self, to: &mut Vec<u8>) {
        let Self { year, month, day, hour, minute, second, micros } = self;
        let _written =
            write!(to, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(seconds: u64) -> (String, String) {
        let (mut common, mut rfc3339) = (Vec::new(), Vec::new());
        let at = Timestamp::of(Micros::new(seconds * 1_000_000 + 42));
        at.write_common(&mut common);
        at.write_rfc3339(&mut rfc3339);
        (String::from_utf8(common).unwrap(), String::from_utf8(rfc3339).unwrap())
    }

    #[test]
    fn moments_are_written_as_log_readers_expect_them() {
        for (seconds, common, rfc3339) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00.000042Z"),
            (951_782_399, "28/Feb/2000:23:59:59 +0000", "2000-02-28T23:59:59.000042Z"),
            (951_782_400, "29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00.000042Z"),
            (1_709_251_199, "29/Feb/2024:23:59:59 +0000", "2024-02-29T23:59:59.000042Z"),
            (1_767_225_599, "31/Dec/2025:23:59:59 +0000", "2025-12-31T23:59:59.000042Z"),
            (4_107_542_400, "01/Mar/2100:00:00:00 +0000", "2100-03-01T00:00:00.000042Z"),
        ] {
            assert_eq!(shown(seconds), (common.to_owned(), rfc3339.to_owned()));
        }
    }
}
