//! Finds the window that holds a moment.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spile_core::{Micros, Window};

use crate::anchor::{Anchor, AnchorError};
use crate::period::Period;
use crate::start_rule::{DateRule, StartRule};
use crate::zone::{self, UnknownZone};

/// A period, a time zone and an anchor, which determine when a quota starts anew.
///
/// A clone is cheap. [`window_at`](Self::window_at) takes about a microsecond: keep the window until it has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Calendar {
    rule: StartRule,
    zone: TimeZone,
}

impl Calendar {
    /// Windows of this period in UTC, from midnight, Monday, the first of the month or 1 January.
    pub fn new(period: Period) -> Self {
        Self { rule: StartRule::of(period), zone: TimeZone::UTC }
    }

    /// Sets the time zone, from the IANA database: `Europe/Berlin`.
    pub fn zone(self, name: &str) -> Result<Self, UnknownZone> {
        Ok(Self { zone: zone::find(name)?, ..self })
    }

    /// Sets the anchor: another hour, weekday, day of the month or day of the year. See [`Anchor`].
    pub fn anchor(self, anchor: impl Into<Anchor>) -> Result<Self, AnchorError> {
        let (anchor, period) = (anchor.into(), self.period());
        let rule = StartRule::anchored(period, &anchor).ok_or(AnchorError { anchor, period })?;
        Ok(Self { rule, ..self })
    }

    /// The length of its windows.
    pub fn period(&self) -> Period {
        self.rule.period()
    }

    /// The name of its time zone, as the database spells it.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Where its windows start, in the shortest spelling of configuration; `None` for minutes and hours.
    pub fn anchored_on(&self) -> Option<Anchor> {
        self.rule.anchor()
    }

    /// The window that holds `now`.
    pub fn window_at(&self, now: Micros) -> Window {
        let at = timestamp(now);
        let (start, end) = match self.rule {
            StartRule::Clock(seconds) => (
                zone::second(zone::clock_start(&self.zone, at, seconds)),
                zone::second(zone::clock_end(&self.zone, at, seconds)),
            ),
            StartRule::Date(rule) => self.start_and_end(rule, at),
        };
        Window { start: start.map_or(EPOCH, micros), end: end.map_or(NEVER, micros) }
    }

    /// A moment as clocks in its zone show it, in RFC 3339: `2027-02-28T00:00:00+01:00`.
    pub fn rfc3339(&self, moment: Micros) -> String {
        let at = timestamp(moment);
        at.display_with_offset(self.zone.to_offset(at)).to_string()
    }

    /// The last start at or before `at`, and the first one after it.
    fn start_and_end(&self, rule: DateRule, at: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        let mut wall = rule.last_start(self.zone.to_datetime(at));
        let moment = |wall| zone::first_shown(&self.zone, wall);
        let mut start = wall.and_then(moment);
        loop {
            wall = wall.and_then(|wall| rule.next_start(wall));
            match wall.and_then(moment) {
                // The clocks have shown the next start before they were put back, or they skip a window.
                Some(end) if end <= at => start = Some(end),
                end => return (start, end),
            }
        }
    }
}

/// The first moment of all.
const EPOCH: Micros = Micros::new(0);

/// The end of the last window.
const NEVER: Micros = Micros::new(u64::MAX);

/// Maps moments after the last one that the calendar can represent to that one.
fn timestamp(now: Micros) -> Timestamp {
    let us = i64::try_from(now.get()).ok();
    us.and_then(|us| Timestamp::from_microsecond(us).ok()).unwrap_or(Timestamp::MAX)
}

fn micros(moment: Timestamp) -> Micros {
    Micros::new(u64::try_from(moment.as_microsecond()).unwrap_or(0))
}
