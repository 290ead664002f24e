//! Windows tile time: every moment lies in exactly one, in every zone, with every anchor.

mod windows_around;

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use proptest::prelude::*;
use spile_calendar::{Anchor, Calendar, Period, Window};
use spile_core::{Clock, Micros, SystemClock};
use windows_around::windows_around;

/// 2150-01-01T00:00:00Z
const LAST: u64 = 5_680_281_600_000_000;
/// Midnight of 31 December 2011 in Samoa, which had left the 30th out.
const SAMOA_MOVED: Micros = Micros::from_secs(1_325_239_200);
const DAY: u64 = 86_400_000_000;

#[test]
fn every_change_of_every_zone_lies_in_windows_that_tile_time() {
    // Many zones are other names of the same clocks.
    let mut seen = HashSet::new();
    for zone in zones() {
        let changes: Vec<Micros> =
            changes(&TimeZoneDatabase::bundled().get(&zone).expect("a zone")).collect();
        if !seen.insert(changes.clone()) {
            continue;
        }
        for calendar in calendars(&zone) {
            for change in &changes {
                assert_tiled(&calendar, *change);
            }
        }
    }
    assert!(seen.len() > 200, "{} different zones", seen.len());
}

#[test]
fn no_window_is_skipped_or_doubled_from_1970_to_2150() {
    for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "America/Havana", "Africa/Casablanca"] {
        for (period, anchor) in [
            (Period::Day, Anchor::from(0)),
            (Period::Week, "sun".into()),
            (Period::Month, 31.into()),
            (Period::Year, "02-29".into()),
        ] {
            let calendar =
                Calendar::new(period).zone(zone).expect("a zone").anchor(anchor).expect("an anchor");
            let mut window = calendar.window_at(calendar.window_at(Micros::new(0)).end);
            while window.end.get() < LAST {
                let next = calendar.window_at(window.end);
                assert_eq!(next.start, window.end, "{calendar:?}");
                let left_out =
                    i32::from(period == Period::Day && next.start == SAMOA_MOVED && zone == "Pacific/Apia");
                assert_eq!(number(&calendar, next), number(&calendar, window) + 1 + left_out, "{calendar:?}");
                window = next;
            }
        }
    }
}

/// Counts days, weeks, months or years by the date on which a window starts.
fn number(calendar: &Calendar, window: Window) -> i32 {
    let start = Timestamp::from_microsecond(window.start.get().cast_signed()).expect("a moment");
    let date = start.in_tz(calendar.zone_name()).expect("a zone").date();
    let (year, month) = (i32::from(date.year()), i32::from(date.month()));
    let days = || date.duration_since(jiff::civil::date(1970, 1, 4)).as_hours() / 24;
    match calendar.period() {
        Period::Week => {
            assert_eq!(days() % 7, 0, "{date} is a Sunday");
            i32::try_from(days() / 7).expect("a week")
        }
        Period::Month => year * 12 + month,
        Period::Year => year,
        _ => i32::try_from(days()).expect("a day"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_moment_lies_in_exactly_one_window(calendar in any_calendar(), now in 0..LAST) {
        assert_tiled(&calendar, Micros::new(now));
    }

    #[test]
    fn two_moments_are_in_the_same_window_or_in_windows_apart(
        calendar in any_calendar(),
        now in 0..LAST,
        later in prop_oneof![0..DAY, 0..40 * DAY, 0..800 * DAY],
    ) {
        let (first, second) = (calendar.window_at(Micros::new(now)), calendar.window_at(Micros::new(now + later)));
        prop_assert!(first == second || first.end <= second.start, "{first:?} {second:?}");
    }

    #[test]
    fn any_number_is_a_moment_of_some_window(calendar in any_calendar(), now in 0..u64::MAX) {
        assert_tiled(&calendar, Micros::new(now));
    }
}

/// Prints the cost of a look-up; `cargo test -p spile-calendar --test tiling -- --nocapture cost`.
#[test]
fn the_cost_of_a_question_is_small() {
    let clock = SystemClock::default();
    for (period, zone) in [
        (Period::Month, "UTC"),
        (Period::Month, "Europe/Berlin"),
        (Period::Day, "Europe/Berlin"),
        (Period::Hour, "Europe/Berlin"),
        (Period::Minute, "UTC"),
    ] {
        let calendar = Calendar::new(period).zone(zone).expect("a zone");
        let (rounds, before) = (10_000, clock.now());
        for round in 0..rounds {
            let now = Micros::from_secs(1_800_000_000 + round * 9_999);
            assert!(std::hint::black_box(calendar.window_at(now)).contains(now));
        }
        let each = Duration::from_micros(clock.now().since_us(before)) / 10_000;
        println!("{period} in {zone}: {each:?}");
        assert!(each < Duration::from_millis(1), "{period} in {zone}: {each:?}");
    }
}

fn assert_tiled(calendar: &Calendar, now: Micros) {
    let [previous, current, next] = windows_around(calendar, now);
    assert!(current.contains(now), "{calendar:?} at {now:?}: {current:?}");
    assert_eq!([previous.end, current.end], [current.start, next.start], "{calendar:?} at {now:?}");
    for window in [previous, current, next] {
        let bounded = window.start.get() > 0 && window.end.get() < u64::MAX;
        assert!(!bounded || lengths(calendar.period()).contains(&window.length_us()), "{window:?}");
        let longest = spile_core::Windows::longest(calendar);
        assert!(
            !bounded || u128::from(window.length_us()) <= longest.as_micros(),
            "{calendar:?}: {window:?}"
        );
        assert_same_from_end_to_end(calendar, window);
    }
}

fn assert_same_from_end_to_end(calendar: &Calendar, window: Window) {
    if window.length_us() > 0 {
        let middle = window.start.plus_us(window.length_us() / 2);
        for moment in [window.start, middle, Micros::new(window.end.get() - 1)] {
            assert_eq!(calendar.window_at(moment), window, "{calendar:?} at {moment:?}");
        }
    }
}

/// The possible lengths of a window. Clocks were put forward by a day at most, as in Samoa, and back by seven hours, as at Vostok.
fn lengths(period: Period) -> RangeInclusive<u64> {
    let hours = |hours: u64| hours * 3_600_000_000;
    match period {
        Period::Minute => 1_000_000..=120_000_000,
        Period::Hour => 1_000_000..=hours(2),
        Period::Day => hours(1)..=hours(24 + 7),
        Period::Week => hours(6 * 24)..=hours(7 * 24 + 7),
        Period::Month => hours(27 * 24)..=hours(31 * 24 + 7),
        Period::Year => hours(364 * 24)..=hours(366 * 24 + 7),
    }
}

fn zones() -> Vec<String> {
    TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
}

/// Every period, with the anchors that meet changes of clocks and short months.
fn calendars(zone: &str) -> Vec<Calendar> {
    let in_zone = |period| Calendar::new(period).zone(zone).expect("a zone");
    let mut calendars: Vec<Calendar> = Period::ALL.into_iter().map(in_zone).collect();
    for (period, anchor) in [
        (Period::Day, Anchor::from(1)),
        (Period::Day, 2.into()),
        (Period::Week, "sun".into()),
        (Period::Month, 31.into()),
        (Period::Year, "02-29".into()),
    ] {
        calendars.push(in_zone(period).anchor(anchor).expect("an anchor"));
    }
    calendars
}

/// The moments from 1970 to 2045 at which a zone's clocks are changed.
fn changes(clocks: &TimeZone) -> impl Iterator<Item = Micros> {
    let changes = clocks.following(Timestamp::UNIX_EPOCH).map(|change| change.timestamp().as_second());
    let seconds = changes.take_while(|second| *second < 2_366_841_600);
    seconds.map(|second| Micros::from_secs(u64::try_from(second).expect("a moment after the epoch")))
}

fn any_calendar() -> impl Strategy<Value = Calendar> {
    let anchored = prop_oneof![
        Just((Period::Minute, None)),
        Just((Period::Hour, None)),
        (0_i64..24).prop_map(|hour| (Period::Day, Some(Anchor::Number(hour)))),
        prop::sample::select(vec!["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
            .prop_map(|weekday| (Period::Week, Some(weekday.into()))),
        (1_i64..32).prop_map(|day| (Period::Month, Some(Anchor::Number(day)))),
        (1..13, 1..30).prop_map(|(month, day)| (Period::Year, Some(format!("{month:02}-{day:02}").into()))),
    ];
    (prop::sample::select(zones()), anchored).prop_map(|(zone, (period, anchor))| {
        let calendar = Calendar::new(period).zone(&zone).expect("a zone");
        match anchor {
            Some(anchor) => calendar.anchor(anchor).expect("an anchor"),
            None => calendar,
        }
    })
}
