//! Spans of time as people write them: `50ms`, `1s`, `2m`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::file::{Faults, Spot};

/// What a store, or a request to it, may take.
pub(super) const STORE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// How often buckets are saved.
pub(super) const SAVING: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3_600);
/// What a whole request may take, or be told to wait.
pub(super) const REQUEST: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3_600);

pub(super) fn check(
    Spot { value, place }: &Spot<String>,
    bounds: RangeInclusive<Duration>,
    faults: &mut Faults,
) -> Option<Duration> {
    let show = humantime::format_duration;
    match humantime::parse_duration(value) {
        Ok(span) if bounds.contains(&span) => Some(span),
        Ok(_) => {
            let bound = format!("{} to {}", show(*bounds.start()), show(*bounds.end()));
            faults.add(place, format_args!("`{value}` is out of bounds"), bound);
            None
        }
        Err(_) => {
            faults.add(
                place,
                format_args!("`{value}` is no span of time"),
                "a number and a unit, as in `50ms` or `1s`",
            );
            None
        }
    }
}
