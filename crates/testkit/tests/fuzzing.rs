//! The parsers of `core` and `policy`, which know of no test kit. What others parse is tried next to its parser.

use http::uri::PathAndQuery;
use spile_core::{Limit, LimitTextError};
use spile_policy::{CleanPath, HostPattern, PathPattern, canonical_host};
use spile_testkit::fuzz::fuzz;

#[test]
fn fuzzed_texts_are_limits_that_read_back_or_are_refused_with_the_text_in_quotes() {
    fuzz("limit-text", &["/s", "/min", "/day", ", ", "1000000000", "ms", "us"], |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
        match text.parse::<Limit>() {
            Ok(limit) => {
                assert_eq!(limit.to_string().parse(), Ok(limit), "{text} and back");
                assert!(limit.capacity() <= Limit::MAX_AMOUNT && limit.fill_time() <= Limit::MAX_FILL);
                1
            }
            Err(why) => {
                assert!(why.to_string().contains(&format!("`{text}`")), "{why}");
                2 + u8::from(matches!(why, LimitTextError::OutOfBounds { .. }))
            }
        }
    });
}

#[test]
fn fuzzed_paths_have_one_reading_or_are_refused_with_a_reason() {
    let words = ["/../", "/./", "%2e", "%2F", "%5c", "%25", ";x=1", "%c0%af", "%C3%A9", "//", "?a=/../"];
    fuzz("path", &words, |bytes| {
        let Ok(asked) = PathAndQuery::try_from(bytes) else { return Err("no path and query") };
        let clean = CleanPath::of(&asked).map_err(|unclear| unclear.0)?;
        let (forwarded, matched) = (clean.forwarded(), clean.matched());
        assert_eq!(clean.query(), asked.query());
        assert!(clean.untouched().is_none_or(|same| same.path() == forwarded && forwarded == matched));
        // What is forwarded is what an upstream reads, however strict it is: it has nothing left to resolve.
        assert!(forwarded.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b'\\'), "{forwarded}");
        let (again, folded) = (forwarded.parse().expect("a path"), forwarded.to_ascii_lowercase());
        let again = CleanPath::of(&again).expect("a clean path is clean");
        assert_eq!((again.forwarded(), again.matched()), (forwarded, matched));
        for trick in ["//", "%2e", "%2f", "%5c", "%00"] {
            assert!(!folded.contains(trick), "{forwarded}");
        }
        let segments = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
        let decoded: Vec<String> = segments(forwarded).iter().map(|one| decoded(one)).collect();
        let bare = |one: &String| one.split(';').next().unwrap_or_default().to_owned();
        assert_eq!(decoded.iter().map(bare).collect::<Vec<_>>(), segments(matched));
        assert!(segments(matched).iter().all(|one| one != "." && one != ".."), "{matched}");
        Ok(decoded.len())
    });
}

#[test]
fn fuzzed_patterns_are_shown_as_they_were_written_and_match_themselves() {
    fuzz("path-pattern", &["/*", "*", "/a", "%", "?", ".."], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(pattern) = text.parse::<PathPattern>() else { return 0 };
        let shown = pattern.to_string();
        assert_eq!(shown.parse::<PathPattern>().map(|same| same.to_string()), Ok(shown.clone()));
        assert!(pattern.matches(&shown) && pattern.overlaps(&pattern), "{shown}");
        shown.matches('/').count()
    });
}

#[test]
fn fuzzed_hosts_have_one_spelling_or_are_refused() {
    let words = [":80", "[::1]", "*.", "xn--", "%2e", "@", "::ffff:127.0.0.1", "."];
    fuzz("host", &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let host = canonical_host(&text)?;
        assert_eq!(canonical_host(&host).as_ref(), Some(&host));
        assert_eq!(canonical_host(&text.to_ascii_uppercase()).as_ref(), Some(&host), "in capitals");
        assert!(host.len() <= 255 && !host.contains(|sign: char| sign.is_ascii_uppercase()), "{host}");
        let (exact, below) = (host.parse::<HostPattern>(), format!("*.{host}").parse::<HostPattern>());
        let (exact, below) = (exact.expect("a host"), below.expect("a domain"));
        assert!(exact.matches(&host) && !below.matches(&host) && !exact.overlaps(&below), "{host}");
        for pattern in [&exact, &below] {
            assert_eq!(pattern.to_string().parse().as_ref(), Ok(pattern));
        }
        Some((host.starts_with('['), host.matches('.').count()))
    });
}

/// The segment without percent-encoding, by a reading of its own.
fn decoded(segment: &str) -> String {
    let mut pieces = segment.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
