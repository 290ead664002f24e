//! When a quota starts anew: windows of the calendar, in any IANA time zone.
//!
//! A [`Calendar`] is a [`Period`], a time zone and an [`Anchor`]. It finds the [`Window`] that holds a moment. Windows tile time:
//! every moment lies in exactly one, each ends where the next one starts, and none is empty.
//!
//! ```
//! use spile_calendar::{Calendar, Period};
//! use spile_core::Micros;
//!
//! // Bills are written on the 31st, in Berlin. In February that is the 28th.
//! let calendar = Calendar::new(Period::Month).zone("Europe/Berlin")?.anchor(31)?;
//! // 2027-03-01T12:00:00Z
//! let window = calendar.window_at(Micros::from_secs(1_803_902_400));
//! // From 2027-02-28T00:00 (+01:00) to 2027-03-31T00:00 (+02:00).
//! assert_eq!(window.start, Micros::from_secs(1_803_769_200));
//! assert_eq!(window.end, Micros::from_secs(1_806_444_000));
//! assert_eq!(calendar.rfc3339(window.end), "2027-03-31T00:00:00+02:00");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where clocks are changed
//!
//! A window of a day, a week, a month or a year starts when local clocks **first** show its start or a later time:
//!
//! - If clocks are put forward over the start (a gap), the window starts with the first moment after the gap.
//! - If clocks are put back and show the start twice (a fold), the window starts with the first of the two.
//! - A day that a zone skips, as Samoa did with 30 December 2011, has no window. One that it skips in part has a short one.
//!
//! A day may therefore have 23 or 25 hours. A window of a minute or an hour starts **whenever** local clocks show a full minute or
//! hour, and with the first moment after a gap that skips a full one. An hour that is shown twice is two windows of an hour each.
//! Where clocks are changed by half an hour, as on Lord Howe Island, an hour is followed by one of 30 minutes in spring, and one
//! has 90 minutes in autumn.
//!
//! Time starts with the epoch: a window that began before it starts at the epoch. The last window of the year 9999 has no end.
//!
//! This crate has no I/O and reads no clock. It contains the time zone database; it does not read the system's.

mod anchor;
mod calendar;
mod period;
mod quota;
mod start_rule;
mod zone;

pub use anchor::{Anchor, AnchorError};
pub use calendar::Calendar;
pub use period::{Period, UnknownPeriod};
pub use quota::{CalendarLimit, CalendarQuota, QuotaTokens};
pub use spile_core::Window;
pub use zone::{UnknownZone, tzdb_version};
