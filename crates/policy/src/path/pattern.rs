//! Patterns of paths: `/login`, `/scores/*`, `/users/*/scores`.

use std::fmt;
use std::str::FromStr;

/// Which paths something applies to.
///
/// Segments are compared one by one, so that `/scores` does not match `/scoreboard`. A `*` in the middle matches one
/// segment; a `*` at the end matches the path before it and everything below. A trailing slash makes no difference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathPattern {
    segments: Box<[Segment]>,
    /// Whether everything below matches too.
    below: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Segment {
    Literal(Box<str>),
    Any,
}

impl PathPattern {
    /// The path and everything below it, as a route takes it.
    pub fn prefix(path: &str) -> Result<Self, PatternError> {
        Self::from_str(path).map(|pattern| Self { below: true, ..pattern })
    }

    /// One path without wildcards.
    pub fn literal(path: &str) -> Result<Self, PatternError> {
        let pattern = Self::from_str(path)?;
        let plain = !pattern.below && !pattern.segments.contains(&Segment::Any);
        if plain { Ok(pattern) } else { Err(PatternError(path.to_owned())) }
    }

    /// Whether the path matches. It must be clean already: no dots, no doubled slashes, decoded.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = segments_of(path);
        let own = self.segments.iter().all(|segment| {
            rest.next().is_some_and(|found| match segment {
                Segment::Literal(literal) => **literal == *found,
                Segment::Any => true,
            })
        });
        own && (self.below || rest.next().is_none())
    }

    /// Whether some path matches both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |(one, two): (&Segment, &Segment)| {
            one == two || matches!((one, two), (Segment::Any, _) | (_, Segment::Any))
        };
        let reaches = |short: &Self, long: &Self| short.below || short.segments.len() == long.segments.len();
        let (short, long) =
            if self.segments.len() <= other.segments.len() { (self, other) } else { (other, self) };
        reaches(short, long) && short.segments.iter().zip(&long.segments).all(meet)
    }

    /// How many segments the pattern itself has.
    pub fn depth(&self) -> usize {
        self.segments.len()
    }

    /// The pattern with more segments is more specific, then the one with more literal segments.
    pub fn specificity(&self) -> (usize, usize, bool) {
        let literal = self.segments.iter().filter(|segment| matches!(segment, Segment::Literal(_))).count();
        (self.segments.len(), literal, !self.below)
    }
}

/// The segments of a path, without empty ones.
fn segments_of(path: &str) -> impl Iterator<Item = &str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/').filter(|segment| !segment.is_empty())
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if !text.starts_with('/') || text.contains("//") || text.contains(['?', '#', '%', ';', '\\']) {
            return Err(PatternError(text.to_owned()));
        }
        let mut segments: Vec<_> = segments_of(text).collect();
        let below = segments.last() == Some(&"*") || segments.last() == Some(&"**");
        if below {
            segments.pop();
        }
        let segments: Option<Box<[_]>> = segments.into_iter().map(segment).collect();
        segments.map(|segments| Self { segments, below }).ok_or_else(|| PatternError(text.to_owned()))
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
        match (self.below, self.segments.is_empty()) {
            (true, _) => f.write_str("/*"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

fn segment(text: &str) -> Option<Segment> {
    match text {
        "*" => Some(Segment::Any),
        "." | ".." => None,
        _ if text.contains('*') => None,
        _ => Some(Segment::Literal(text.into())),
    }
}

/// A text that is not a path pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` is not a path pattern: start with a slash, write each segment in plain or as `*`, as in /users/*/scores"
)]
pub struct PatternError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_segments_only() {
        let table = [
            ("/login", "/login", true),
            ("/login", "/login/", true),
            ("/login", "/login/x", false),
            ("/login", "/logins", false),
            ("/login", "/Login", false),
            ("/scores/*", "/scores", true),
            ("/scores/*", "/scores/7/details", true),
            ("/scores/*", "/scoreboard", false),
            ("/users/*/scores", "/users/7/scores", true),
            ("/users/*/scores", "/users/scores", false),
            ("/", "/", true),
            ("/", "/a", false),
            ("/*", "/", true),
            ("/*", "/a/b", true),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(pattern.parse::<PathPattern>().unwrap().matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn two_patterns_overlap_where_one_path_matches_both() {
        let table = [
            ("/a/*", "/a/b", true),
            ("/a", "/a/b", false),
            ("/*", "/x/y/z", true),
            ("/users/*/scores", "/users/7/*", true),
            ("/users/*/scores", "/teams/*", false),
            ("/a/b", "/a/c", false),
        ];
        for (one, two, overlap) in table {
            let (one, two) = (one.parse::<PathPattern>().unwrap(), two.parse::<PathPattern>().unwrap());
            assert_eq!((one.overlaps(&two), two.overlaps(&one)), (overlap, overlap), "{one} {two}");
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_was_written() {
        for text in ["/", "/*", "/login", "/scores/*", "/users/*/scores"] {
            assert_eq!(text.parse::<PathPattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_pattern_that_could_never_match_is_refused() {
        for text in ["", "login", "/a//b", "/a/../b", "/a*", "/a?x", "/%61"] {
            assert!(text.parse::<PathPattern>().is_err(), "{text}");
        }
    }

    use proptest::prelude::*;

    fn segments() -> impl Strategy<Value = Vec<String>> {
        let segment = prop_oneof![
            proptest::sample::select(vec!["a", "b", "admin", "login", "ab", "a b", "é"])
                .prop_map(str::to_owned),
            "[a-z~._-]{1,4}".prop_filter("dots are no segments", |text| text != "." && text != ".."),
        ];
        proptest::collection::vec(segment, 0..5)
    }

    fn path_of(segments: &[String]) -> String {
        format!("/{}", segments.join("/"))
    }

    proptest! {
        #[test]
        fn a_pattern_that_is_spelt_out_matches_itself_alone(own in segments(), other in segments()) {
            let pattern: PathPattern = path_of(&own).parse().unwrap();
            prop_assert!(pattern.matches(&path_of(&own)));
            prop_assert!(pattern.matches(&(path_of(&own) + "/")) || own.is_empty());
            prop_assert_eq!(pattern.matches(&path_of(&other)), own == other);
        }

        #[test]
        fn a_prefix_matches_whatever_begins_with_its_segments(own in segments(), other in segments()) {
            let prefix = PathPattern::prefix(&path_of(&own)).unwrap();
            prop_assert_eq!(prefix.matches(&path_of(&other)), other.starts_with(&own));
            prop_assert!(prefix.matches(&path_of(&[own, other].concat())));
        }

        #[test]
        fn a_star_stands_for_one_segment_whichever(own in segments(), at in 0_usize..5, other in segments()) {
            let mut starred = own.clone();
            // A last star is a prefix, which is another thing.
            let Some(place) = starred.len().checked_sub(2).map(|last| at.min(last)) else { return Ok(()) };
            starred[place] = "*".to_owned();
            let pattern: PathPattern = path_of(&starred).parse().unwrap();
            let fits = other.len() == own.len()
                && other.iter().zip(&own).enumerate().all(|(index, (left, right))| index == place || left == right);
            prop_assert!(pattern.matches(&path_of(&own)));
            prop_assert_eq!(pattern.matches(&path_of(&other)), fits);
        }

        #[test]
        fn any_text_is_a_pattern_or_is_refused_and_never_panics(pattern in "\\PC{0,24}", path in "\\PC{0,24}") {
            if let Ok(pattern) = pattern.parse::<PathPattern>() {
                let _matches = pattern.matches(&path);
            }
        }
    }
}
