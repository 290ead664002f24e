//! A moment as RFC 3339 writes it.

use std::fmt;

use spile_core::Micros;

/// A moment in UTC with milliseconds: `2025-12-11T16:15:25.000Z`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rfc3339(pub Micros);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.get() / 1_000;
        let seconds = ms / 1_000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
    }
}

/// The date that lies this many days after 1970-01-01.
///
/// Counts in eras of 400 years that begin on the first of March, so that the leap day is the last of its year.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_dates_do() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_765_469_725_000_000, "2025-12-11T16:15:25.000Z"),
            (1_772_323_199_999_999, "2026-02-28T23:59:59.999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (us, text) in table {
            assert_eq!(Rfc3339(Micros::new(us)).to_string(), text);
        }
    }
}
