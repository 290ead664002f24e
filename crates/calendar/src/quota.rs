//! Quotas by the calendar: `Limit::quota(100_000).per_month()`.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Limit, LimitBuilder, LimitError, Micros, QuotaWindows, Window, Windows};

use crate::anchor::{Anchor, AnchorError};
use crate::calendar::Calendar;
use crate::period::Period;
use crate::zone::UnknownZone;

/// Gives [`Limit`] its quotas by the calendar.
pub trait CalendarLimit {
    /// So many tokens in each window of a calendar.
    ///
    /// ```
    /// use spile_calendar::CalendarLimit;
    /// use spile_core::Limit;
    ///
    /// let limit: Limit = Limit::quota(100_000).per_month().zone("Europe/Berlin")?.anchor(15)?.build()?;
    /// assert_eq!(limit.to_string(), "100000 per month in Europe/Berlin from 15");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn quota(tokens: u64) -> QuotaTokens;
}

impl CalendarLimit for Limit {
    fn quota(tokens: u64) -> QuotaTokens {
        QuotaTokens(tokens)
    }
}

/// The tokens of a quota, of which the period is still to be said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "say per which period: `per_month()`"]
pub struct QuotaTokens(u64);

impl QuotaTokens {
    /// So many in each minute.
    pub fn per_minute(self) -> Quota {
        self.per(Period::Minute)
    }

    /// So many in each hour.
    pub fn per_hour(self) -> Quota {
        self.per(Period::Hour)
    }

    /// So many on each day, from midnight.
    pub fn per_day(self) -> Quota {
        self.per(Period::Day)
    }

    /// So many in each week, from Monday.
    pub fn per_week(self) -> Quota {
        self.per(Period::Week)
    }

    /// So many in each month, from its first day.
    pub fn per_month(self) -> Quota {
        self.per(Period::Month)
    }

    /// So many in each year, from 1 January.
    pub fn per_year(self) -> Quota {
        self.per(Period::Year)
    }

    /// So many in each period, in UTC.
    pub fn per(self, period: Period) -> Quota {
        Quota { tokens: self.0, calendar: Calendar::new(period), debt: None }
    }
}

/// A quota that has not been checked yet. [`build`](Self::build) checks it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct Quota {
    tokens: u64,
    calendar: Calendar,
    debt: Option<u64>,
}

impl Quota {
    /// In a zone of the IANA database, such as `Europe/Berlin`.
    pub fn zone(self, name: &str) -> Result<Self, UnknownZone> {
        Ok(Self { calendar: self.calendar.zone(name)?, ..self })
    }

    /// From another hour, weekday, day of the month or day of the year. See [`Anchor`].
    pub fn anchor(self, anchor: impl Into<Anchor>) -> Result<Self, AnchorError> {
        Ok(Self { calendar: self.calendar.anchor(anchor)?, ..self })
    }

    /// Late charges may take up to `tokens` beyond what is left. The next window starts without that debt.
    pub fn debt(self, tokens: u64) -> Self {
        Self { debt: Some(tokens), ..self }
    }

    /// The limit, if it lies within the bounds.
    pub fn build(self) -> Result<Limit, LimitError> {
        LimitBuilder::from(self).build()
    }
}

impl From<Quota> for LimitBuilder {
    fn from(quota: Quota) -> Self {
        let builder = Limit::per_window(quota.tokens, quota.calendar.windows());
        quota.debt.map_or(builder, |debt| builder.debt(debt))
    }
}

impl TryFrom<Quota> for Limit {
    type Error = LimitError;

    fn try_from(quota: Quota) -> Result<Self, LimitError> {
        quota.build()
    }
}

/// Every calendar that a limit has used. There are few, and all of them may be in use.
static USED: Mutex<Vec<(Calendar, QuotaWindows)>> = Mutex::new(Vec::new());

impl Calendar {
    /// Its windows, as limits refer to them. Equal calendars have the same.
    pub fn windows(&self) -> QuotaWindows {
        let mut used = USED.lock();
        if let Some((_, windows)) = used.iter().find(|(calendar, _)| calendar == self) {
            return *windows;
        }
        let windows = QuotaWindows::new(self.clone());
        used.push((self.clone(), windows));
        windows
    }

    /// The calendar of a quota. `None` if the limit is a rate, or its windows are none of a calendar.
    pub fn of(limit: &Limit) -> Option<Self> {
        let wanted = limit.windows()?;
        let used = USED.lock();
        used.iter().find(|(_, windows)| *windows == wanted).map(|(calendar, _)| calendar.clone())
    }
}

impl Windows for Calendar {
    fn window_at(&self, now: Micros) -> Window {
        self.window_at(now)
    }

    fn period(&self) -> Duration {
        self.period().length()
    }

    /// Twice as long where clocks that are put back can repeat a whole period, and a day more where they cannot.
    fn longest(&self) -> Duration {
        let length = self.period().length();
        match self.period() {
            Period::Minute | Period::Hour | Period::Day => 2 * length,
            Period::Week => length + Period::Day.length(),
            Period::Month | Period::Year => length + 2 * Period::Day.length(),
        }
    }
}

/// Reads behind `per`: `month in Europe/Berlin from 15`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.period())?;
        if self.zone_name() != "UTC" {
            write!(f, " in {}", self.zone_name())?;
        }
        let first = Self::new(self.period()).anchored_on();
        match self.anchored_on().filter(|anchor| Some(anchor) != first.as_ref()) {
            Some(anchor) => write!(f, " from {anchor}"),
            None => Ok(()),
        }
    }
}
