//! Numbers, times and keys as people read them.

use std::time::{Duration, UNIX_EPOCH};

use spile_core::Micros;

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The share of a part: `1.4%`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match part as f64 / whole.max(1) as f64 * 100.0 {
        0.0 => "0%".to_owned(),
        share if share < 0.1 => "<0.1%".to_owned(),
        share if share < 10.0 => format!("{share:.1}%"),
        // A share that is not all of it is never shown as such.
        share => format!("{}%", (share as u64).min(if part < whole { 99 } else { 100 })),
    }
}

/// A moment to the millisecond, for machines.
pub(super) fn exact_time(at: Micros) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(at.get())).to_string()
}

/// `2000-10-10T20:55:36.250Z` as `2000-10-10 20:55:36`.
pub(super) fn to_second(exact_time: &str) -> String {
    exact_time.split('.').next().unwrap_or_default().replace('T', " ")
}

/// A time span, as exact as people want it: `445ms`, `5.1s`, `2h 13m`.
pub(super) fn span(span: Duration) -> String {
    // A wait of less than a millisecond is still a wait.
    let ms = span.as_micros().div_ceil(1_000) as u64;
    match ms {
        0 => "0s".to_owned(),
        1..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}", ms as f64 / 1_000.0).trim_end_matches(".0").to_owned() + "s",
        _ => {
            let text = humantime::format_duration(Duration::from_secs(ms / 1_000)).to_string();
            text.split(' ').take(2).collect::<Vec<_>>().join(" ")
        }
    }
}

/// A key that a terminal shows as it is: without characters that would change the line.
pub(super) fn shown(key: &str) -> String {
    let is_plain = |letter: char| {
        !letter.is_control()
            && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    key.chars().map(|letter| if is_plain(letter) { letter } else { '\u{fffd}' }).collect()
}

/// A key for people, cut to `most` characters: `joined:4:ip:16:path:/` is `ip:1 + path:/`.
pub(super) fn cut(key: &str, most: usize) -> String {
    let parts = key.strip_prefix("joined:").and_then(joined_parts);
    let key = shown(&parts.map_or_else(|| key.to_owned(), |parts| parts.join(" + ")));
    if key.chars().count() <= most {
        return key;
    }
    key.chars().take(most - 1).chain(['…']).collect()
}

/// The parts of a joined key, each with its length before it.
fn joined_parts(mut text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (length, rest) = text.split_once(':')?;
        let (part, rest) = rest.split_at_checked(length.parse().ok()?)?;
        parts.push(part);
        text = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_times_and_shares_are_written_for_people() {
        let numbers: Vec<_> = [0, 999, 1_000, 1_234_567].map(grouped).into();
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        let shares = [(0, 9), (1, 9_999), (14, 1_000), (999, 1_000), (9_999, 10_000), (5, 5), (0, 0)];
        let shares: Vec<_> = shares.into_iter().map(|(part, whole)| percent(part, whole)).collect();
        assert_eq!(shares, ["0%", "<0.1%", "1.4%", "99%", "99%", "100%", "0%"]);
        let time = exact_time(Micros::new(971_211_336_250_999));
        assert_eq!(
            (time.as_str(), to_second(&time).as_str()),
            ("2000-10-10T20:55:36.250Z", "2000-10-10 20:55:36")
        );
        let spans = [0, 1, 1_500_000, 12_345_678, 90_061_000_000].map(|us| span(Duration::from_micros(us)));
        assert_eq!(spans, ["0s", "1ms", "1.5s", "12.3s", "1day 1h"]);
    }

    #[test]
    fn a_key_cannot_change_the_line_that_it_is_shown_in() {
        assert_eq!(shown("path:/\u{1b}[2J\u{202e}x"), "path:/\u{fffd}[2J\u{fffd}x");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn a_joined_key_is_shown_by_its_parts() {
        assert_eq!(cut("joined:11:tenant:acme11:path:/res/7", 40), "tenant:acme + path:/res/7");
        for odd in ["joined:", "joined:x", "joined:9:short", "joined:18446744073709551616:a", "joined:1:é"] {
            let shown = cut(odd, 40);
            assert!(shown == odd || odd == "joined:", "{odd}: {shown}");
        }
    }
}
