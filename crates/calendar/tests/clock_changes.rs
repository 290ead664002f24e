//! Windows where clocks are changed, zones move and months are short. Moments are written as they are read on a clock in UTC.

mod windows_around;

use jiff::Timestamp;
use spile_calendar::{Calendar, Period, Window, tzdb_version};
use spile_core::Micros;
use windows_around::windows_around;

const HOUR: u64 = 3_600_000_000;
const MINUTE: u64 = 60_000_000;

#[test]
fn a_day_has_23_hours_when_clocks_are_put_forward_and_25_when_they_are_put_back() {
    let berlin = in_zone(Period::Day, "Europe/Berlin");
    assert_window(&berlin, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
    assert_window(&berlin, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
    assert_eq!(berlin.window_at(at("2026-03-29T12:00:00Z")).length_us(), 23 * HOUR);
    assert_eq!(berlin.window_at(at("2026-10-25T12:00:00Z")).length_us(), 25 * HOUR);
}

#[test]
fn a_day_whose_midnight_is_left_out_starts_with_the_first_moment_after_it() {
    // Clocks went from 23:59:59 to 01:00.
    let sao_paulo = in_zone(Period::Day, "America/Sao_Paulo");
    assert_window(&sao_paulo, "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
    let beirut = in_zone(Period::Day, "Asia/Beirut");
    assert_window(&beirut, "2022-03-27T12:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z");
}

#[test]
fn a_day_whose_midnight_is_shown_twice_starts_with_the_first() {
    // Clocks went from 00:59:59 to 00:00.
    let havana = in_zone(Period::Day, "America/Havana");
    assert_window(&havana, "2025-11-02T04:30:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z");
    assert_window(&havana, "2025-11-02T05:30:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z");
}

#[test]
fn a_day_stays_the_same_when_clocks_are_put_back_to_the_day_before() {
    // Clocks went from 23:59:59 on 17 February to 23:00 on the same day: midnight came once, an hour later.
    let sao_paulo = in_zone(Period::Day, "America/Sao_Paulo");
    assert_window(&sao_paulo, "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z");
    // Clocks went from 00:00:59 on 29 October to 23:01 on the 28th: the 29th had begun, and goes on.
    let saint_johns = in_zone(Period::Day, "America/St_Johns");
    assert_window(&saint_johns, "2006-10-29T02:45:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z");
}

#[test]
fn zones_follow_the_rules_of_the_release_that_is_named() {
    assert!(tzdb_version() >= "2026e", "{}", tzdb_version());
    // New in 2026e: Manitoba stays at -05 in winter.
    let winnipeg = in_zone(Period::Day, "America/Winnipeg");
    assert_window(&winnipeg, "2027-01-15T12:00:00Z", "2027-01-15T05:00:00Z", "2027-01-16T05:00:00Z");
}

#[test]
fn an_anchor_within_a_gap_is_the_first_moment_after_it_and_one_within_a_fold_the_first_of_two() {
    let berlin = in_zone(Period::Day, "Europe/Berlin").anchor(2).expect("an hour");
    assert_window(&berlin, "2026-03-29T00:59:59Z", "2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z");
    assert_window(&berlin, "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z");
    assert_window(&berlin, "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z");
}

#[test]
fn an_hour_that_is_shown_twice_is_two_windows_and_one_that_is_left_out_is_none() {
    let berlin = in_zone(Period::Hour, "Europe/Berlin");
    for hour in 0..72 {
        for start in ["2026-03-28T00:00:00Z", "2026-10-24T00:00:00Z"] {
            let start = at(start).plus_us(hour * HOUR);
            let window = Window { start, end: start.plus_us(HOUR) };
            assert_eq!(berlin.window_at(start.plus_us(17 * MINUTE)), window);
        }
    }
}

#[test]
fn half_an_hour_of_summer_time_makes_one_hour_short_and_one_long() {
    let lord_howe = in_zone(Period::Hour, "Australia/Lord_Howe");
    // From 01:59:59 (+11) back to 01:30 (+10:30).
    assert_window(&lord_howe, "2026-04-04T15:10:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z");
    assert_window(&lord_howe, "2026-04-04T15:30:00Z", "2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z");
    // From 01:59:59 (+10:30) to 02:30 (+11).
    assert_window(&lord_howe, "2026-10-03T15:29:59Z", "2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z");
    assert_window(&lord_howe, "2026-10-03T15:30:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z");
}

#[test]
fn hours_and_minutes_follow_the_zones_own_clock() {
    let kathmandu = in_zone(Period::Hour, "Asia/Kathmandu");
    assert_window(&kathmandu, "2026-05-01T12:20:00Z", "2026-05-01T12:15:00Z", "2026-05-01T13:15:00Z");
    // Until 1972 clocks in Liberia were 44 minutes and 30 seconds behind.
    let monrovia = in_zone(Period::Minute, "Africa/Monrovia");
    assert_window(&monrovia, "1971-05-01T12:00:40Z", "1971-05-01T12:00:30Z", "1971-05-01T12:01:30Z");
}

#[test]
fn a_day_that_a_zone_leaves_out_has_no_window() {
    for zone in ["Pacific/Apia", "Pacific/Fakaofo"] {
        // 30 December 2011 was left out.
        let [before, day, after] = windows_around(&in_zone(Period::Day, zone), at("2011-12-31T00:00:00Z"));
        let (hours, shown) = ([before, day, after].map(|day| day.length_us() / HOUR), day.start);
        assert_eq!(hours, [24; 3], "{zone}");
        let dates = [before.start, shown].map(|start| date_in(zone, start));
        assert_eq!(dates, ["2011-12-29", "2011-12-31"]);
    }
    // 21 August 1993 was left out.
    let days = windows_around(&in_zone(Period::Day, "Pacific/Kwajalein"), at("1993-08-21T12:30:00Z"));
    let dates = days.map(|day| date_in("Pacific/Kwajalein", day.start));
    assert_eq!(dates, ["1993-08-20", "1993-08-22", "1993-08-23"]);
}

#[test]
fn what_is_left_of_a_day_that_a_zone_leaves_out_in_part_is_a_short_window() {
    // From 02:00 on 30 December, which was left out, to 02:00 on the 31st.
    let apia = in_zone(Period::Day, "Pacific/Apia").anchor(2).expect("an hour");
    assert_window(&apia, "2011-12-30T11:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T12:00:00Z");
}

#[test]
fn a_month_that_starts_on_a_day_that_was_left_out_starts_on_the_next() {
    let apia = in_zone(Period::Month, "Pacific/Apia").anchor(30).expect("a day");
    assert_window(&apia, "2012-01-05T00:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z");
}

#[test]
fn a_month_without_the_anchors_day_starts_on_its_last_day() {
    for (day, starts) in [
        (29, ["2027-01-29", "2027-02-28", "2027-03-29", "2027-04-29", "2027-05-29"]),
        (30, ["2027-01-30", "2027-02-28", "2027-03-30", "2027-04-30", "2027-05-30"]),
        (31, ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31"]),
    ] {
        let month = Calendar::new(Period::Month).anchor(day).expect("a day");
        assert_starts(&month, &starts);
    }
    let month = Calendar::new(Period::Month).anchor(31).expect("a day");
    assert_starts(&month, &["2028-01-31", "2028-02-29", "2028-03-31"]);
    assert_starts(&month, &["2027-11-30", "2027-12-31", "2028-01-31"]);
}

#[test]
fn a_year_that_starts_on_29_february_starts_on_the_28th_in_common_years() {
    let year = Calendar::new(Period::Year).anchor("02-29").expect("a day");
    assert_starts(
        &year,
        &["2096-02-29", "2097-02-28", "2098-02-28", "2099-02-28", "2100-02-28", "2101-02-28"],
    );
    assert_starts(&year, &["2027-02-28", "2028-02-29", "2029-02-28"]);
    assert_starts(&Calendar::new(Period::Year), &["2026-01-01", "2027-01-01", "2028-01-01"]);
}

#[test]
fn a_week_starts_on_monday_or_on_its_weekday() {
    assert_starts(&Calendar::new(Period::Week), &["2026-11-16", "2026-11-23", "2026-11-30"]);
    let week = Calendar::new(Period::Week).anchor("sunday").expect("a weekday");
    assert_starts(&week, &["2026-11-15", "2026-11-22", "2026-11-29"]);
}

#[test]
fn the_first_window_starts_at_the_epoch_and_the_last_one_has_no_end() {
    for period in Period::ALL {
        for zone in ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"] {
            let calendar = in_zone(period, zone);
            let [before, first, second] = windows_around(&calendar, Micros::new(0));
            assert_eq!((before.length_us(), first.start), (0, Micros::new(0)));
            assert_eq!(first.end, second.start);
            let [before, last, after] = windows_around(&calendar, Micros::new(u64::MAX));
            assert_eq!((last.end, after.length_us()), (Micros::new(u64::MAX), 0));
            assert_eq!(before.end, last.start);
            assert!(last.start > at("9998-01-01T00:00:00Z"), "{zone} {period}");
            assert_eq!(calendar.window_at(last.start), last, "{zone} {period}");
        }
    }
}

fn in_zone(period: Period, zone: &str) -> Calendar {
    Calendar::new(period).zone(zone).expect("a zone")
}

fn at(text: &str) -> Micros {
    let moment: Timestamp = text.parse().expect("a moment");
    Micros::new(u64::try_from(moment.as_microsecond()).expect("a moment after the epoch"))
}

fn date_in(zone: &str, moment: Micros) -> String {
    let moment = Timestamp::from_microsecond(moment.get().cast_signed()).expect("a moment");
    moment.in_tz(zone).expect("a zone").date().to_string()
}

fn assert_window(calendar: &Calendar, now: &str, start: &str, end: &str) {
    let window = Window { start: at(start), end: at(end) };
    for now in [at(now), window.start, Micros::new(window.end.get() - 1)] {
        assert_eq!(calendar.window_at(now), window, "{calendar:?} at {now:?}");
    }
}

/// Windows in UTC start on these dates, one after the other.
fn assert_starts(calendar: &Calendar, dates: &[&str]) {
    let starts: Vec<Micros> = dates.iter().map(|date| at(&format!("{date}T00:00:00Z"))).collect();
    for pair in starts.windows(2) {
        let window = Window { start: pair[0], end: pair[1] };
        for now in [window.start, Micros::new(window.end.get() - 1)] {
            assert_eq!(calendar.window_at(now), window, "{calendar:?}");
        }
    }
}
