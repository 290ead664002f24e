//! Quotas by the calendar: `Limit::quota(100_000).per_month()`.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Amount, Limit, LimitError, Micros, QuotaBuilder, QuotaWindows, Unit, Window, Windows};

use crate::anchor::{Anchor, AnchorError};
use crate::calendar::Calendar;
use crate::period::Period;
use crate::zone::UnknownZone;

/// Adds calendar quotas to [`Limit`].
pub trait CalendarLimit {
    /// A quota of this many tokens in each window of a calendar.
    ///
    /// ```
    /// use spile_calendar::CalendarLimit;
    /// use spile_core::Limit;
    ///
    /// let limit: Limit = Limit::quota(100_000).per_month().zone("Europe/Berlin")?.anchor(15)?.build()?;
    /// assert_eq!(limit.to_string(), "100000 per month in Europe/Berlin from 15");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn quota(tokens: impl Into<Amount>) -> QuotaTokens;
}

impl CalendarLimit for Limit {
    fn quota(tokens: impl Into<Amount>) -> QuotaTokens {
        QuotaTokens(tokens.into())
    }
}

/// The tokens of a quota whose period is still to be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "say per which period: `per_month()`"]
pub struct QuotaTokens(Amount);

impl QuotaTokens {
    /// Per minute.
    pub fn per_minute(self) -> CalendarQuota {
        self.per(Period::Minute)
    }

    /// Per hour.
    pub fn per_hour(self) -> CalendarQuota {
        self.per(Period::Hour)
    }

    /// Per day, from midnight.
    pub fn per_day(self) -> CalendarQuota {
        self.per(Period::Day)
    }

    /// Per week, from Monday.
    pub fn per_week(self) -> CalendarQuota {
        self.per(Period::Week)
    }

    /// Per month, from its first day.
    pub fn per_month(self) -> CalendarQuota {
        self.per(Period::Month)
    }

    /// Per year, from 1 January.
    pub fn per_year(self) -> CalendarQuota {
        self.per(Period::Year)
    }

    /// Per period, in UTC.
    pub fn per(self, period: Period) -> CalendarQuota {
        CalendarQuota { tokens: self.0, calendar: Calendar::new(period), debt: None, unit: Unit::default() }
    }
}

/// A builder of a quota by the calendar. [`build`](Self::build) checks the bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct CalendarQuota {
    tokens: Amount,
    calendar: Calendar,
    debt: Option<Amount>,
    unit: Unit,
}

impl CalendarQuota {
    /// Sets the time zone, from the IANA database: `Europe/Berlin`.
    pub fn zone(self, name: &str) -> Result<Self, UnknownZone> {
        Ok(Self { calendar: self.calendar.zone(name)?, ..self })
    }

    /// Sets the anchor: another hour, weekday, day of the month or day of the year. See [`Anchor`].
    pub fn anchor(self, anchor: impl Into<Anchor>) -> Result<Self, AnchorError> {
        Ok(Self { calendar: self.calendar.anchor(anchor)?, ..self })
    }

    /// Lets late charges take up to `tokens` beyond what is left. The next window starts without that debt.
    pub fn debt(self, tokens: impl Into<Amount>) -> Self {
        Self { debt: Some(tokens.into()), ..self }
    }

    /// Sets the unit.
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Builds the limit if it is within the bounds.
    pub fn build(self) -> Result<Limit, LimitError> {
        QuotaBuilder::from(self).build()
    }
}

impl From<CalendarQuota> for QuotaBuilder {
    fn from(quota: CalendarQuota) -> Self {
        let builder = Limit::per_window(quota.tokens, quota.calendar.windows()).unit(quota.unit);
        quota.debt.map_or(builder, |debt| builder.debt(debt))
    }
}

impl TryFrom<CalendarQuota> for Limit {
    type Error = LimitError;

    fn try_from(quota: CalendarQuota) -> Result<Self, LimitError> {
        quota.build()
    }
}

/// Every calendar that a limit has used. There are few, and any of them may be in use.
static USED: Mutex<Vec<(Calendar, QuotaWindows)>> = Mutex::new(Vec::new());

impl Calendar {
    /// Its windows, for a limit. Equal calendars share them.
    pub fn windows(&self) -> QuotaWindows {
        let mut used = USED.lock();
        if let Some((_, windows)) = used.iter().find(|(calendar, _)| calendar == self) {
            return *windows;
        }
        let windows = QuotaWindows::new(self.clone());
        used.push((self.clone(), windows));
        windows
    }

    /// The number of calendars that limits have used, which are kept for the lifetime of the process.
    pub fn in_use() -> usize {
        USED.lock().len()
    }

    /// The calendar of a quota. `None` for a limit of another shape, or with windows of another kind.
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

    /// Twice the length where clocks that are put back can repeat a whole period, otherwise longer by a day or two.
    fn longest(&self) -> Duration {
        let length = self.period().length();
        match self.period() {
            Period::Minute | Period::Hour | Period::Day => 2 * length,
            Period::Week => length + Period::Day.length(),
            Period::Month | Period::Year => length + 2 * Period::Day.length(),
        }
    }
}

/// Follows `per`: `month in Europe/Berlin from 15`.
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
