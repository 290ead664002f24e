//! Windows agree with those that Python's zoneinfo finds by stepping through time. tests/oracle/generate.py writes the cases.

use spile_calendar::{Anchor, Calendar, Period, Window};
use spile_core::Micros;

const CASES: &str = include_str!("oracle/cases.csv");

#[test]
fn windows_are_those_that_another_program_finds_by_walking_through_time() {
    let mut wrong = Vec::new();
    for case in CASES.lines().skip(1) {
        let fields: Vec<&str> = case.split(',').collect();
        let [zone, period, anchor, now, start, end] = fields[..] else { panic!("six fields: {case}") };
        let calendar = calendar(zone, period, anchor);
        let window = Window { start: moment(start), end: moment(end) };
        let found = [calendar.window_at(moment(now)), calendar.window_at(moment(now).plus_us(999_999))];
        if found != [window; 2] {
            wrong.push(format!("{case}: {found:?}"));
        }
    }
    assert!(CASES.lines().count() > 500, "the cases were read at all");
    assert!(
        wrong.is_empty(),
        "{} cases differ. If the time zone database has changed, run tests/oracle/generate.py with the same one:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn calendar(zone: &str, period: &str, anchor: &str) -> Calendar {
    let period: Period = period.parse().expect("a period");
    let calendar = Calendar::new(period).zone(zone).expect("a zone");
    if anchor.is_empty() { calendar } else { calendar.anchor(Anchor::from(anchor)).expect("an anchor") }
}

fn moment(seconds: &str) -> Micros {
    Micros::from_secs(seconds.parse().expect("seconds since the epoch"))
}
