//! The starts of windows in local time. Knows dates, but no time zones.

use jiff::civil::{Date, DateTime, Weekday};

use crate::anchor::Anchor;
use crate::period::Period;

/// A leap year, in which every day of the year exists.
const LEAP_YEAR: i16 = 2000;

/// The weekdays as they are written, from Monday; three letters are enough.
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A period with a valid anchor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StartRule {
    /// Every full minute or hour, in seconds.
    Clock(i64),
    Date(DateRule),
}

/// The starts of days, weeks, months and years, in ascending order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DateRule {
    Day { hour: i8 },
    Week { weekday: Weekday },
    Month { day: i8 },
    Year { month: i8, day: i8 },
}

impl StartRule {
    /// The rule of a period without an anchor.
    pub(crate) const fn of(period: Period) -> Self {
        Self::Date(match period {
            Period::Minute => return Self::Clock(60),
            Period::Hour => return Self::Clock(3_600),
            Period::Day => DateRule::Day { hour: 0 },
            Period::Week => DateRule::Week { weekday: Weekday::Monday },
            Period::Month => DateRule::Month { day: 1 },
            Period::Year => DateRule::Year { month: 1, day: 1 },
        })
    }

    /// The rule of a period with an anchor; `None` if the anchor does not exist for the period.
    pub(crate) fn anchored(period: Period, anchor: &Anchor) -> Option<Self> {
        let rule = match (period, anchor) {
            (Period::Day, Anchor::Number(hour)) => DateRule::Day { hour: within(*hour, 0, 23)? },
            (Period::Week, Anchor::Text(name)) => DateRule::Week { weekday: weekday(name)? },
            (Period::Month, Anchor::Number(day)) => DateRule::Month { day: within(*day, 1, 31)? },
            (Period::Year, Anchor::Text(text)) => day_of_year(text)?,
            _ => return None,
        };
        Some(Self::Date(rule))
    }

    pub(crate) const fn period(self) -> Period {
        match self {
            Self::Clock(60) => Period::Minute,
            Self::Clock(_) => Period::Hour,
            Self::Date(DateRule::Day { .. }) => Period::Day,
            Self::Date(DateRule::Week { .. }) => Period::Week,
            Self::Date(DateRule::Month { .. }) => Period::Month,
            Self::Date(DateRule::Year { .. }) => Period::Year,
        }
    }

    /// The anchor in its shortest spelling.
    pub(crate) fn anchor(self) -> Option<Anchor> {
        let Self::Date(rule) = self else { return None };
        Some(match rule {
            DateRule::Day { hour } => Anchor::Number(hour.into()),
            DateRule::Week { weekday } => {
                Anchor::Text(WEEKDAYS[weekday.to_monday_zero_offset() as usize][..3].to_owned())
            }
            DateRule::Month { day } => Anchor::Number(day.into()),
            DateRule::Year { month, day } => Anchor::Text(format!("{month:02}-{day:02}")),
        })
    }
}

impl DateRule {
    /// The last start at or before `wall`; `None` before the first date that can be represented.
    pub(crate) fn last_start(self, wall: DateTime) -> Option<DateTime> {
        let start = self.start(wall.date(), 0)?;
        if start <= wall { Some(start) } else { self.start(wall.date(), -1) }
    }

    /// The start after this one; `None` after the last date that can be represented.
    pub(crate) fn next_start(self, start: DateTime) -> Option<DateTime> {
        self.start(start.date(), 1)
    }

    /// The start on this day, in its week, month or year, moved by this number of periods.
    fn start(self, day: Date, by: i8) -> Option<DateTime> {
        let midnight = |day: Date| day.at(0, 0, 0, 0);
        match self {
            Self::Day { hour } => Some(days_after(day, by.into())?.at(hour, 0, 0, 0)),
            Self::Week { weekday } => {
                let since = i32::from(day.weekday().since(weekday));
                days_after(day, 7 * i32::from(by) - since).map(midnight)
            }
            Self::Month { day: first } => {
                let months = i16::from(day.month() - 1 + by);
                let (year, month) = (day.year() + months.div_euclid(12), months.rem_euclid(12) + 1);
                day_within(year, month as i8, first).map(midnight)
            }
            Self::Year { month, day: first } => {
                day_within(day.year() + i16::from(by), month, first).map(midnight)
            }
        }
    }
}

/// A day of a month; the month's last day if the month has fewer. `None` if the year cannot be represented.
fn day_within(year: i16, month: i8, day: i8) -> Option<Date> {
    let first = Date::new(year, month, 1).ok()?;
    Date::new(year, month, day.min(first.days_in_month())).ok()
}

fn days_after(day: Date, days: i32) -> Option<Date> {
    day.checked_add(jiff::Span::new().days(days)).ok()
}

fn within(number: i64, first: i8, last: i8) -> Option<i8> {
    i8::try_from(number).ok().filter(|number| (first..=last).contains(number))
}

fn weekday(name: &str) -> Option<Weekday> {
    let name = name.to_ascii_lowercase();
    let known = WEEKDAYS.iter().position(|full| name == *full || name == full[..3])?;
    Weekday::from_monday_zero_offset(known as i8).ok()
}

fn day_of_year(text: &str) -> Option<DateRule> {
    let (month, day) = text.split_once('-')?;
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(month) || !digits(day) {
        return None;
    }
    let day = Date::new(LEAP_YEAR, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some(DateRule::Year { month: day.month(), day: day.day() })
}
