//! Valid settings, and the messages about invalid ones.

use spile_calendar::{Anchor, Calendar, Period};

#[test]
fn a_calendar_tells_what_it_was_made_of_in_the_spelling_of_configuration() {
    let calendar =
        Calendar::new(Period::Month).zone("europe/berlin").expect("a zone").anchor(15).expect("a day");
    let told = (calendar.period(), calendar.zone_name(), calendar.anchored_on());
    assert_eq!(told, (Period::Month, "Europe/Berlin", Some(Anchor::Number(15))));
    for (period, written, told) in [
        (Period::Day, Anchor::from(23), Anchor::from(23)),
        (Period::Day, "6".into(), 6.into()),
        (Period::Week, "Wednesday".into(), "wed".into()),
        (Period::Week, "SUN".into(), "sun".into()),
        (Period::Month, "31".into(), 31.into()),
        (Period::Year, "2-29".into(), "02-29".into()),
        (Period::Year, String::from("12-31").into(), "12-31".into()),
    ] {
        assert_eq!(Calendar::new(period).anchor(written).expect("an anchor").anchored_on(), Some(told));
    }
}

#[test]
fn without_settings_windows_start_where_a_reader_expects_it_in_utc() {
    let defaults = Period::ALL.map(|period| {
        let calendar = Calendar::new(period);
        assert_eq!(calendar.zone_name(), "UTC");
        calendar.anchored_on().map_or_else(String::new, |anchor| anchor.to_string())
    });
    assert_eq!(defaults, ["", "", "0", "\"mon\"", "1", "\"01-01\""]);
    let spelled_out =
        Calendar::new(Period::Week).zone("UTC").expect("a zone").anchor("monday").expect("a weekday");
    assert_eq!(spelled_out, Calendar::new(Period::Week));
}

#[test]
fn a_bad_anchor_is_named_with_its_bounds() {
    for (period, anchor, why) in [
        (Period::Month, Anchor::from(32), "anchor = 32: a month has days 1 to 31"),
        (Period::Month, 0.into(), "anchor = 0: a month has days 1 to 31"),
        (Period::Month, "last".into(), "anchor = \"last\": a month has days 1 to 31"),
        (Period::Day, 24.into(), "anchor = 24: a day has hours 0 to 23"),
        (Period::Day, (-1).into(), "anchor = -1: a day has hours 0 to 23"),
        (Period::Day, (256 + 5).into(), "anchor = 261: a day has hours 0 to 23"),
        (Period::Week, 1.into(), "anchor = 1: a week starts on a weekday, \"mon\" to \"sun\""),
        (Period::Week, "m".into(), "anchor = \"m\": a week starts on a weekday, \"mon\" to \"sun\""),
        (Period::Hour, 5.into(), "anchor = 5: an hour has no anchor"),
        (Period::Minute, "mon".into(), "anchor = \"mon\": a minute has no anchor"),
    ] {
        assert_eq!(Calendar::new(period).anchor(anchor).expect_err(why).to_string(), why);
    }
    for day in ["02-30", "13-01", "00-01", "04-31", "4", "04-", "-04-01", "+4-01", "04-01-01", "", "april"] {
        let why = Calendar::new(Period::Year).anchor(day).expect_err(day).to_string();
        let rest = "a year starts on a month and a day that exists, \"01-01\" to \"12-31\"";
        assert_eq!(why.replace('"', ""), format!("anchor = {day}: {rest}").replace('"', ""));
    }
}

#[test]
fn an_unknown_zone_is_named_with_the_one_that_was_meant() {
    for (name, meant) in [
        ("Europe/Berln", Some("Europe/Berlin")),
        ("europe/pari", Some("Europe/Paris")),
        ("Berlin", Some("Europe/Berlin")),
        ("New York", Some("America/New_York")),
        ("Etc/Unknown", None),
        ("Mars/Olympus_Mons", None),
        ("+02:00", None),
        ("CET-1CEST", None),
        ("../../etc/passwd", None),
        ("", None),
    ] {
        let why = Calendar::new(Period::Day).zone(name).expect_err(name).to_string();
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
        assert_eq!(why, format!("zone = {name:?}: not in the IANA time zone database{meant}"));
    }
}

#[test]
fn a_name_of_any_length_is_answered_shortly() {
    let why = Calendar::new(Period::Day).zone(&"x".repeat(1 << 20)).expect_err("not a zone").to_string();
    assert!(why.len() < 200, "{why}");
}
