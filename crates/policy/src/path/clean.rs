//! Normalises paths, so that the path that rules match is the path that the upstream gets.
//!
//! Dot segments, double slashes and unnecessary percent-encoding are resolved here, and the result is both matched and
//! forwarded. Paths that servers interpret in different ways (an encoded slash, a backslash, a path above the root) are
//! refused: whichever way a rule interpreted them, some upstream would do it the other way.

use http::uri::PathAndQuery;
use percent_encoding::percent_encode_byte;

/// A path that the gateway and its upstreams interpret in the same way.
#[derive(Clone, Debug)]
pub struct CleanPath {
    asked: PathAndQuery,
    /// `None` if the path was clean already, as nearly all are.
    cleaned: Option<Cleaned>,
}

#[derive(Clone, Debug)]
struct Cleaned {
    /// The path for the upstream: only what must be percent-encoded is.
    forwarded: String,
    /// The path for rules: decoded, and without the `;parameters` that some servers remove.
    matched: String,
}

/// Why a path is ambiguous.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct AmbiguousPath(pub &'static str);

impl CleanPath {
    /// Normalises a path. Fails if it is ambiguous.
    pub fn of(asked: &PathAndQuery) -> Result<Self, AmbiguousPath> {
        let path = asked.path();
        if !path.starts_with('/') {
            return Err(AmbiguousPath("the path must start with a slash"));
        }
        // A target without a path (`http://host?query`) means the root, which must be written out for an upstream.
        let spelt_out = asked.as_str().starts_with('/');
        let cleaned = if spelt_out && is_clean(path) { None } else { Some(clean(path)?) };
        Ok(Self { asked: asked.clone(), cleaned })
    }

    /// The path that rules and routes match.
    pub fn matched(&self) -> &str {
        self.cleaned.as_ref().map_or_else(|| self.asked.path(), |cleaned| &cleaned.matched)
    }

    /// The path that is sent to upstreams.
    pub fn forwarded(&self) -> &str {
        self.cleaned.as_ref().map_or_else(|| self.asked.path(), |cleaned| &cleaned.forwarded)
    }

    /// The query, unchanged.
    pub fn query(&self) -> Option<&str> {
        self.asked.query()
    }

    /// The original path and query. `None` if the path had to be normalised.
    pub fn untouched(&self) -> Option<&PathAndQuery> {
        self.cleaned.is_none().then_some(&self.asked)
    }
}

/// Whether the path needs no normalisation.
fn is_clean(path: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'%' | b';' | b'\\');
    let mut before = 0;
    for byte in path.bytes() {
        // A dot only matters at the start of a segment.
        if !plain(byte) || (before == b'/' && (byte == b'/' || byte == b'.')) {
            return false;
        }
        before = byte;
    }
    true
}

fn clean(path: &str) -> Result<Cleaned, AmbiguousPath> {
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut open_end = false;
    for segment in path[1..].split('/') {
        let (forwarded, decoded) = read(segment)?;
        let matched = decoded.split(';').next().unwrap_or_default();
        open_end = matches!(matched, "" | "." | "..") && !decoded.contains(';');
        match matched {
            // Some servers remove the parameters and then resolve the dots, others do not.
            "" | "." | ".." if decoded.contains(';') => {
                return Err(AmbiguousPath("a segment of dots, or of nothing, carries parameters"));
            }
            "" | "." => {}
            ".." => {
                kept.pop().ok_or(AmbiguousPath("the path climbs above the root"))?;
            }
            _ => kept.push((forwarded, matched.to_owned())),
        }
    }
    if open_end {
        kept.push(Default::default());
    }
    let forwarded = kept.iter().flat_map(|(forwarded, _)| ["/", forwarded]).collect();
    let matched = kept.iter().flat_map(|(_, matched)| ["/", matched]).collect();
    Ok(Cleaned { forwarded, matched })
}

/// A segment for the upstream, in which only what must be percent-encoded is, so that each text has one spelling, and the decoded
/// segment. Fails if the decoded text would be two segments, or if it is ambiguous.
fn read(segment: &str) -> Result<(String, String), AmbiguousPath> {
    let mut forwarded = String::with_capacity(segment.len());
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = if first == b'%' { decoded_byte(after)? } else { (first, after) };
        match byte {
            b'/' => return Err(AmbiguousPath("the path has an encoded slash")),
            b'\\' => return Err(AmbiguousPath("the path has a backslash")),
            0..=0x1F | 0x7F => return Err(AmbiguousPath("the path has a control character")),
            _ => bytes.push(byte),
        }
        let is_plain = if first == b'%' { is_unreserved(byte) } else { byte.is_ascii_graphic() };
        if is_plain {
            forwarded.push(char::from(byte));
        } else {
            forwarded.push_str(percent_encode_byte(byte));
        }
        rest = after;
    }
    if hides_encoding(&bytes) {
        return Err(AmbiguousPath("the path is encoded twice"));
    }
    if is_overlong(&bytes) {
        return Err(AmbiguousPath("the path spells a character with more bytes than it takes"));
    }
    Ok((forwarded, String::from_utf8_lossy(&bytes).into_owned()))
}

fn decoded_byte(after: &[u8]) -> Result<(u8, &[u8]), AmbiguousPath> {
    let malformed = AmbiguousPath("the path has a percent sign without two hexadecimal digits");
    let (digits, rest) = after.split_at_checked(2).ok_or(malformed)?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (high, low) = digit(digits[0]).zip(digit(digits[1])).ok_or(malformed)?;
    Ok(((high * 16 + low) as u8, rest))
}

/// Whether decoding a second time would change the text.
fn hides_encoding(decoded: &[u8]) -> bool {
    decoded.windows(3).any(|window| window[0] == b'%' && window[1..].iter().all(u8::is_ascii_hexdigit))
}

/// Whether the bytes contain overlong UTF-8. Lenient servers read `%C0%AF` as a slash.
fn is_overlong(decoded: &[u8]) -> bool {
    decoded
        .windows(2)
        .any(|pair| matches!(pair, [0xC0 | 0xC1, 0x80..=0xBF] | [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F]))
}

const fn is_unreserved(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(path: &str) -> Result<(String, String), AmbiguousPath> {
        let path = CleanPath::of(&path.parse().expect("a path that hyper lets through"))?;
        Ok((path.forwarded().to_owned(), path.matched().to_owned()))
    }

    #[test]
    fn every_spelling_of_a_path_becomes_one() {
        for spelling in ["/a/b", "//a///b", "/./a/./b", "/a/x/../b", "/%61/%62", "/a/%2e/b", "/x/%2E%2e/a/b"]
        {
            assert_eq!(cleaned(spelling), Ok(("/a/b".to_owned(), "/a/b".to_owned())), "{spelling}");
        }
    }

    #[test]
    fn a_trailing_slash_is_kept() {
        for spelling in ["/a/", "/a//", "/a/.", "/a/b/.."] {
            assert_eq!(cleaned(spelling).unwrap().0, "/a/", "{spelling}");
        }
        assert_eq!(cleaned("/").unwrap().0, "/");
        assert_eq!(cleaned("//").unwrap().0, "/");
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let table = [
            "/a%2Fb",
            "/a%2fb",
            "/a%5Cb",
            "/a\\b",
            "/a%00",
            "/a%0d%0a",
            "/../a",
            "/a/../../b",
            "/%2e%2e/a",
            "/a/..;/b",
            "/a/.;x=1/b",
            "/a%",
            "/a%4",
            "/a%zz",
            "/a/%252e%252e/b",
            "/a%252Fb",
            "/a%25252f",
            "/%256cogin",
            "/;x/a",
            "/a/;x",
            "/a/%3Bx/b",
            "/a%C0%AFb",
            "/a%e0%80%afb",
            "/%c0%ae%c0%ae/a",
        ];
        for path in table {
            assert!(cleaned(path).is_err(), "{path}");
        }
    }

    #[test]
    fn parameters_are_forwarded_but_dodge_no_rule() {
        assert_eq!(cleaned("/admin;x=1/b"), Ok(("/admin;x=1/b".to_owned(), "/admin/b".to_owned())));
        assert_eq!(cleaned("/admin%3Bx/b").unwrap().1, "/admin/b");
    }

    #[test]
    fn what_must_stay_encoded_does() {
        assert_eq!(cleaned("/a%20b/%c3%a9"), Ok(("/a%20b/%C3%A9".to_owned(), "/a b/é".to_owned())));
        assert_eq!(cleaned("/100%25").unwrap().0, "/100%25");
    }

    #[test]
    fn a_target_without_a_path_asks_for_the_root() {
        assert_eq!(cleaned("?x=1").unwrap(), ("/".to_owned(), "/".to_owned()));
        let path = CleanPath::of(&"?x=1".parse().unwrap()).unwrap();
        assert_eq!((path.untouched(), path.query()), (None, Some("x=1")));
    }

    #[test]
    fn a_clean_path_is_not_copied() {
        let path = CleanPath::of(&"/a/b.c?x=//".parse().unwrap()).unwrap();
        assert_eq!(path.untouched().unwrap(), "/a/b.c?x=//");
    }

    /// Ways to write a slash and a letter that should all mean the same, and some that mean trouble.
    fn spelt() -> impl proptest::strategy::Strategy<Value = String> {
        let piece = proptest::sample::select(vec![
            "/", "//", "/./", "/../", "/%2e/", "/%2E%2e/", "a", "%61", "admin", "%61dmin", ";x=1", "%3b",
            "%2f", "%5C", "%25", "%252e", "..", ".", "%", "%zz", "é", "%c3%a9", "~", "%7e", "?q=/../",
        ]);
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_clean_stays_as_it_is(path in spelt()) {
            let Ok(asked) = path.parse() else { return Ok(()) };
            let Ok(once) = CleanPath::of(&asked) else { return Ok(()) };
            let again = CleanPath::of(&once.forwarded().parse().unwrap()).expect("a clean path is clean");
            prop_assert_eq!(again.forwarded(), once.forwarded());
            prop_assert_eq!(again.matched(), once.matched());
        }

        #[test]
        fn nothing_that_could_be_read_otherwise_gets_through(path in spelt()) {
            let Ok(asked) = path.parse() else { return Ok(()) };
            let Ok(clean) = CleanPath::of(&asked) else { return Ok(()) };
            let forwarded = clean.forwarded().to_ascii_lowercase();
            for trick in ["//", "/./", "/../", "%2e", "%2f", "%5c", "%00", "\\"] {
                prop_assert!(!forwarded.contains(trick), "{}", forwarded);
            }
            prop_assert!(forwarded.starts_with('/') && !forwarded.ends_with("/.") && !forwarded.ends_with("/.."));
            prop_assert_eq!(forwarded.matches('/').count(), clean.matched().matches('/').count());
        }

        #[test]
        fn any_text_is_cleaned_or_refused_and_never_panics(path in "/[!-~é]{0,64}") {
            if let Ok(asked) = path.parse() {
                let _outcome = CleanPath::of(&asked);
            }
        }
    }
}
