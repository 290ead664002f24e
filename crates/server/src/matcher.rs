//! Which requests a rule is for: a path pattern and methods.

use std::fmt;
use std::str::FromStr;

use http::Method;

/// A path pattern: literal segments, `*` for any one segment, and a last `*` for whatever follows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PathPattern {
    segments: Vec<Segment>,
    /// Whether it goes on after the last segment: `/scores/*` does, with at least one more.
    open: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Segment {
    Literal(String),
    Any,
}

/// The requests that a rule is for. The empty matcher is for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    pub(crate) path: Option<PathPattern>,
    pub(crate) methods: Vec<Method>,
}

impl Matcher {
    pub(crate) fn matches(&self, method: &Method, path: &str) -> bool {
        let method_fits = self.methods.is_empty() || self.methods.contains(method);
        method_fits && self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }

    /// Orders matchers by how much they ask for: more literal segments first, then an end over an open one, then
    /// methods over none.
    pub(crate) fn specificity(&self) -> (usize, bool, usize, bool) {
        let (literals, closed, segments) = match &self.path {
            None => (0, false, 0),
            Some(path) => {
                let literals = path.segments.iter().filter(|segment| **segment != Segment::Any).count();
                (literals + 1, !path.open, path.segments.len())
            }
        };
        (literals, closed, segments, !self.methods.is_empty())
    }
}

impl PathPattern {
    fn matches(&self, path: &str) -> bool {
        let mut parts = segments(path);
        let each_fits = self.segments.iter().all(|segment| match (segment, parts.next()) {
            (_, None) => false,
            (Segment::Any, Some(_)) => true,
            (Segment::Literal(literal), Some(part)) => literal == part,
        });
        each_fits && self.open == parts.next().is_some()
    }
}

/// A trailing slash and doubled slashes make no difference: `/login/` is limited like `/login`.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

impl FromStr for PathPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let bad = || BadPattern(text.to_owned());
        if !text.starts_with('/') || text.contains(['?', '#', ' ']) {
            return Err(bad());
        }
        let mut found = Vec::new();
        for part in segments(text) {
            match part {
                "*" => found.push(Segment::Any),
                part if part.contains('*') => return Err(bad()),
                part => found.push(Segment::Literal(part.to_owned())),
            }
        }
        let open = found.pop_if(|last| *last == Segment::Any).is_some();
        Ok(Self { segments: found, open })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{literal}")?,
                Segment::Any => f.write_str("/*")?,
            }
        }
        match (self.open, self.segments.is_empty()) {
            (true, _) => f.write_str("/*"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

/// A text that is no path pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no path pattern: write `/login`, `/users/*/scores` or `/scores/*`")]
pub(crate) struct BadPattern(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        pattern.parse::<PathPattern>().expect("a pattern").matches(path)
    }

    #[test]
    fn a_pattern_matches_segment_by_segment() {
        for (pattern, path, expected) in [
            ("/login", "/login", true),
            ("/login", "/login/", true),
            ("/login", "//login", true),
            ("/login", "/login/x", false),
            ("/login", "/loginx", false),
            ("/scores/*", "/scores/7", true),
            ("/scores/*", "/scores/7/edit", true),
            ("/scores/*", "/scores", false),
            ("/users/*/scores", "/users/7/scores", true),
            ("/users/*/scores", "/users/7/8/scores", false),
            ("/*", "/anything/at/all", true),
            ("/", "/", true),
            ("/", "/x", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_was_written() {
        for text in ["/", "/*", "/login", "/scores/*", "/users/*/scores"] {
            assert_eq!(text.parse::<PathPattern>().expect("a pattern").to_string(), text);
        }
    }

    #[test]
    fn the_more_a_matcher_asks_for_the_more_specific_it_is() {
        let matcher = |path: Option<&str>, methods: &[Method]| Matcher {
            path: path.map(|path| path.parse().expect("a pattern")),
            methods: methods.to_vec(),
        };
        let ordered = [
            matcher(None, &[]),
            matcher(None, &[Method::GET]),
            matcher(Some("/*"), &[]),
            matcher(Some("/scores/*"), &[]),
            matcher(Some("/scores/*"), &[Method::GET]),
            matcher(Some("/scores"), &[]),
            matcher(Some("/scores/top"), &[]),
        ];
        assert!(ordered.is_sorted_by_key(Matcher::specificity));
    }
}
