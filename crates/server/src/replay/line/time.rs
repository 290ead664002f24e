//! The times of access logs: `10/Oct/2000:13:55:36 -0700`, ISO 8601, and numbers since the epoch.

use spile_core::Micros;

const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
const SECOND_US: u64 = 1_000_000;
/// The last year that can be read.
const LAST_YEAR: u32 = 9_999;
/// The largest difference to UTC that a time zone has, in minutes.
const FURTHEST_ZONE_MIN: u32 = 14 * 60 + 59;
/// The first second after [`LAST_YEAR`].
const END_S: f64 = 253_402_300_800.0;

/// The time of a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LogTime {
    pub(crate) at: Micros,
    /// Whether the log has no fractions of seconds.
    pub(crate) whole_seconds: bool,
}

impl LogTime {
    /// Reads a time as access logs write it. A time without a zone is UTC. `None` if it cannot be read, or is before 1970.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
        common(text).or_else(|| iso(text)).or_else(|| number(text))
    }

    /// A number since the epoch: seconds, milliseconds, microseconds or nanoseconds, whichever gives a plausible time.
    pub(crate) fn since_epoch(number: f64) -> Option<Self> {
        if !number.is_finite() || number < 0.0 {
            return None;
        }
        // Seconds have ten digits from 2001 to 2286, and each smaller unit has three more.
        let unit = match number {
            ..1e11 => 1.0,
            ..1e14 => 1e3,
            ..1e17 => 1e6,
            _ => 1e9,
        };
        let seconds = number / unit;
        let micros = (seconds * SECOND_US as f64).round() as u64;
        let whole_seconds = unit <= 1.0 && micros.is_multiple_of(SECOND_US);
        (seconds < END_S).then_some(Self { at: Micros::new(micros), whole_seconds })
    }
}

/// `10/Oct/2000:13:55:36 -0700`, with a fraction of the second if there is one.
fn common(text: &[u8]) -> Option<LogTime> {
    let mut text = Cursor(text);
    let day = text.number(1, 2)?;
    text.expect(b"/")?;
    let name = text.take(3)?.to_ascii_lowercase();
    let month = MONTHS.iter().position(|month| **month == *name)? + 1;
    text.expect(b"/")?;
    let year = text.number(4, 4)?;
    text.expect(b":")?;
    text.rest_of_time((year, month as u32, day))
}

/// `2000-10-10T13:55:36.123-07:00`, with a space in place of the `T` if need be.
fn iso(text: &[u8]) -> Option<LogTime> {
    let mut text = Cursor(text);
    let year = text.number(4, 4)?;
    text.expect(b"-")?;
    let month = text.number(2, 2)?;
    text.expect(b"-")?;
    let day = text.number(2, 2)?;
    text.expect(b"Tt ")?;
    text.rest_of_time((year, month, day))
}

fn number(text: &[u8]) -> Option<LogTime> {
    let plain = text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let number = std::str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()?;
    let time = LogTime::since_epoch(number)?;
    // `1700000000.000` has fractions, this one just happens to be zero.
    Some(LogTime { whole_seconds: time.whole_seconds && !text.contains(&b'.'), ..time })
}

/// The part of a time that is not parsed yet.
struct Cursor<'t>(&'t [u8]);

impl Cursor<'_> {
    /// Hours, minutes, seconds, fraction and zone. Nothing may follow.
    fn rest_of_time(&mut self, (year, month, day): (u32, u32, u32)) -> Option<LogTime> {
        let hour = self.number(2, 2)?;
        self.expect(b":")?;
        let minute = self.number(2, 2)?;
        self.expect(b":")?;
        // A leap second is the first second of the next minute.
        let second = self.number(2, 2)?;
        let fraction_us = if self.expect(b".,").is_some() { Some(self.fraction_us()?) } else { None };
        let east_min = self.zone_min()?;
        let valid = (1970..=LAST_YEAR).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60
            && self.0.is_empty();
        if !valid {
            return None;
        }
        let minutes = i64::from(hour * 60 + minute) - i64::from(east_min);
        let seconds = days_since_epoch(year, month, day) * 86_400 + minutes * 60 + i64::from(second);
        let at = Micros::from_secs(u64::try_from(seconds).ok()?).plus_us(fraction_us.unwrap_or(0));
        Some(LogTime { at, whole_seconds: fraction_us.is_none() })
    }

    fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// One of these bytes. Any other byte is left to be read.
    fn expect(&mut self, one_of: &[u8]) -> Option<u8> {
        let (&byte, rest) = self.0.split_first().filter(|(byte, _)| one_of.contains(byte))?;
        self.0 = rest;
        Some(byte)
    }

    /// As many digits as there are, from `fewest` to `most`.
    fn number(&mut self, fewest: usize, most: usize) -> Option<u32> {
        let digits = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        let digits = (digits >= fewest).then(|| self.take(digits)).flatten()?;
        Some(digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    /// Up to nine digits after the dot. Those beyond the sixth are dropped.
    fn fraction_us(&mut self) -> Option<u64> {
        let digits = self.0.iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
        let digits = (digits > 0).then(|| self.take(digits)).flatten()?;
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(6);
        Some(padded.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    }

    /// How far the zone is east of UTC, in minutes: `Z`, `-0700`, `+05:30`, `+01`, or nothing.
    fn zone_min(&mut self) -> Option<i32> {
        self.0 = self.0.trim_ascii_start();
        if self.0.is_empty() {
            return Some(0);
        }
        let sign = match self.expect(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.number(2, 2)?;
        let _colon = self.expect(b":");
        let minutes = if self.0.is_empty() { 0 } else { self.number(2, 2)? };
        let east = hours * 60 + minutes;
        (minutes < 60 && east <= FURTHEST_ZONE_MIN).then_some(sign * east.cast_signed())
    }
}

const fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 => 28 + is_leap(year) as u32,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of a date from 1970 on. Years begin in March here, so that the leap day is the last of its year.
fn days_since_epoch(year: u32, month: u32, day: u32) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year / 4 - year / 100 + year / 400;
    // Days from the first of March of the year 0 to the epoch.
    i64::from(year * 365 + leap_days + day_of_year) - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn read(text: &str) -> Option<String> {
        let at = LogTime::parse(text.as_bytes())?.at;
        Some(humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(at.get())).to_string())
    }

    #[test]
    fn every_common_spelling_of_a_time_is_read_in_its_zone() {
        for (text, time) in [
            ("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36.000000Z"),
            ("[10/Oct/2000:13:55:36 -0700]", "2000-10-10T20:55:36.000000Z"),
            ("1/jan/1970:05:30:00 +0530", "1970-01-01T00:00:00.000000Z"),
            ("29/Feb/2024:23:59:60 +0000", "2024-03-01T00:00:00.000000Z"),
            ("10/Oct/2000:13:55:36.123456 -0700", "2000-10-10T20:55:36.123456Z"),
            ("2000-10-10T13:55:36-07:00", "2000-10-10T20:55:36.000000Z"),
            ("2000-10-10 13:55:36.5", "2000-10-10T13:55:36.500000Z"),
            ("2000-10-10T13:55:36,123456789Z", "2000-10-10T13:55:36.123456Z"),
            ("2024-02-29T00:00:00+01", "2024-02-28T23:00:00.000000Z"),
            ("971211336", "2000-10-10T20:55:36.000000Z"),
            ("971211336.250", "2000-10-10T20:55:36.250000Z"),
            ("971211336250", "2000-10-10T20:55:36.250000Z"),
            ("1700000000000001", "2023-11-14T22:13:20.000001Z"),
            ("1700000000000001000", "2023-11-14T22:13:20.000001Z"),
        ] {
            assert_eq!(read(text).as_deref(), Some(time), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "-",
            "10/Okt/2000:13:55:36 -0700",
            "31/Feb/2000:13:55:36 -0700",
            "10/Oct/2000:24:00:00 -0700",
            "10/Oct/2000:13:55:36 -0760",
            "10/Oct/2000:13:55:36 -9900",
            "10/Oct/2000:13:55:36 -0700 more",
            "31/Dec/1969:23:59:59 +0000",
            "01/Jan/1970:00:00:00 +0100",
            "2000-13-10T13:55:36Z",
            "2000-10-10",
            "2000-10-10T13:55:36.Z",
            "-1",
            "1e9",
            "NaN",
            "9".repeat(30).as_str(),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_says_whether_it_has_fractions() {
        let whole = |text: &str| LogTime::parse(text.as_bytes()).map(|time| time.whole_seconds);
        assert_eq!(whole("10/Oct/2000:13:55:36 -0700"), Some(true));
        assert_eq!(whole("971211336"), Some(true));
        assert_eq!(whole("971211336.000"), Some(false));
        assert_eq!(whole("2000-10-10T13:55:36.000Z"), Some(false));
        assert_eq!(whole("971211336000"), Some(false));
    }

    #[test]
    fn days_are_counted_as_the_calendar_counts_them() {
        let mut day = 0;
        for year in 1970..=2400 {
            for month in 1..=12 {
                for date in 1..=days_in(year, month) {
                    assert_eq!(days_since_epoch(year, month, date), day, "{year}-{month}-{date}");
                    day += 1;
                }
            }
        }
    }
}
