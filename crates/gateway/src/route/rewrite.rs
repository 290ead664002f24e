//! Rewrites the path of a request for the upstream.

use http::uri::{InvalidUri, PathAndQuery};

use spile_policy::{AmbiguousPath, CleanPath};

use crate::refusal::GatewayRefusal;

/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 1024;

/// Replaces the first segments of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PathRewrite {
    /// The number of segments to remove.
    pub(crate) segments: usize,
    /// The replacement: empty, or a path without a final slash.
    pub(crate) prefix: Box<str>,
}

/// Why a path cannot be the new prefix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{prefix}` cannot replace a path: {why}")]
pub struct RewriteError {
    prefix: String,
    why: String,
}

/// The path and query for the upstream.
pub(crate) fn upstream_path(
    path: &CleanPath,
    rewrite: Option<&PathRewrite>,
) -> Result<PathAndQuery, GatewayRefusal> {
    if let (Some(untouched), None) = (path.untouched(), rewrite) {
        return Ok(untouched.clone());
    }
    let mut text = match rewrite {
        None => path.forwarded().to_owned(),
        Some(rewrite) => rewrite.apply(path.forwarded()),
    };
    if let Some(query) = path.query() {
        text.push('?');
        text.push_str(query);
    }
    // Two clean paths make a path, unless they are too long together.
    PathAndQuery::try_from(text).map_err(|_| GatewayRefusal::UriTooLong)
}

/// Refuses a prefix that some servers read differently, by the same rules as for requests.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), RewriteError> {
    let wrong = |why: String| RewriteError { prefix: prefix.to_owned(), why };
    let says_more = match prefix.bytes().find(|byte| matches!(byte, b'*' | b'?' | b'#')) {
        Some(b'*') => Some("wildcards have no meaning here"),
        Some(_) => Some("the query is the client's own, and fragments are never sent"),
        None if !prefix.starts_with('/') => Some("it must start with a slash"),
        None if prefix.len() > MAX_PREFIX => Some("it is longer than 1,024 bytes"),
        None => None,
    };
    if let Some(why) = says_more {
        return Err(wrong(why.to_owned()));
    }
    let parsed: PathAndQuery = prefix.parse().map_err(|why: InvalidUri| wrong(why.to_string()))?;
    let clean = CleanPath::of(&parsed).map_err(|AmbiguousPath(why)| wrong(why.to_owned()))?;
    if clean.forwarded() == prefix { Ok(()) } else { Err(wrong(format!("write `{}`", clean.forwarded()))) }
}

impl PathRewrite {
    pub(crate) fn new(segments: usize, prefix: &str) -> Self {
        Self { segments, prefix: prefix.trim_end_matches('/').into() }
    }

    fn apply(&self, path: &str) -> String {
        let rest = path.match_indices('/').nth(self.segments).map_or("", |(start, _)| &path[start..]);
        let rest = if rest.is_empty() && self.prefix.is_empty() { "/" } else { rest };
        [&*self.prefix, rest].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segments_are_replaced() {
        let table = [
            (1, "", "/scores/7", "/7"),
            (1, "", "/scores", "/"),
            (1, "", "/scores/", "/"),
            (2, "", "/api/v1/x/y", "/x/y"),
            (1, "/v2", "/scores/7", "/v2/7"),
            (1, "/v2/", "/scores", "/v2"),
            (0, "/base", "/a", "/base/a"),
        ];
        for (segments, prefix, path, expected) in table {
            assert_eq!(PathRewrite::new(segments, prefix).apply(path), expected, "{path}");
        }
    }

    #[test]
    fn the_query_stays() {
        let path = CleanPath::of(&"/scores/./7?a=/scores".parse().unwrap()).unwrap();
        assert_eq!(upstream_path(&path, Some(&PathRewrite::new(1, ""))).unwrap(), "/7?a=/scores");
        assert_eq!(upstream_path(&path, None).unwrap(), "/scores/7?a=/scores");
    }

    #[test]
    fn a_prefix_that_no_request_could_name_is_refused() {
        for prefix in ["/", "/v2", "/v2/", "/a/b.c", "/a%20b", "/~x", "/a;v=1", "/caf%C3%A9", "/.well-known"]
        {
            assert_eq!(check_prefix(prefix), Ok(()));
        }
        let long = format!("/{}", "a".repeat(MAX_PREFIX));
        for prefix in [
            "",
            "v2",
            "/a<b",
            "/a>b",
            "/a b",
            "/a\\b",
            "/*",
            "/a?b",
            "/a#b",
            "//a",
            "/a//b",
            "/./a",
            "/a/..",
            "/../a",
            "/a/.",
            "/%2e%2e/a",
            "/a%2Fb",
            "/a%2fb",
            "/a%5Cb",
            "/a%00",
            "/a%",
            "/a%zz",
            "/%61",
            "/a%c3%a9",
            "/é",
            "/a%252e",
            "/;x",
            "/a\r\nb",
            &long,
        ] {
            assert!(check_prefix(prefix).is_err(), "{prefix}");
        }
    }

    #[test]
    fn a_path_that_is_too_long_to_be_rewritten_is_refused_and_never_another() {
        let path = CleanPath::of(&format!("/{}", "a".repeat(65_000)).parse().unwrap()).unwrap();
        let prefix = "/b".repeat(500);
        assert!(matches!(
            upstream_path(&path, Some(&PathRewrite::new(0, &prefix))),
            Err(GatewayRefusal::UriTooLong)
        ));
    }

    use proptest::prelude::*;

    /// Parts of paths, valid and invalid.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = proptest::sample::select(vec![
            "/", "a", "B9", ".", "..", "%20", "%2e", "%2F", "%C3%A9", "%", ";", "=", "~", "<", "\"", "{",
            "|", "^", "`", "é", " ", "?", "#", "*", "\\", "@", ":", "&", "+", "!", "'", "(", ",", "$",
        ]);
        proptest::collection::vec(piece, 0..10).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        #[test]
        fn a_prefix_is_refused_at_once_or_every_request_gets_behind_it(
            prefix in pieces(),
            path in pieces(),
            segments in 0_usize..3,
        ) {
            prop_assume!(check_prefix(&prefix).is_ok());
            let Ok(asked) = path.parse() else { return Ok(()) };
            let Ok(clean) = CleanPath::of(&asked) else { return Ok(()) };
            let rewritten = upstream_path(&clean, Some(&PathRewrite::new(segments, &prefix))).unwrap();
            prop_assert!(rewritten.path().starts_with(prefix.trim_end_matches('/')), "{}", rewritten);
            let read_again = CleanPath::of(&rewritten).unwrap();
            prop_assert_eq!(read_again.forwarded(), rewritten.path(), "it has one reading");
            prop_assert_eq!(rewritten.query(), clean.query());
        }

        #[test]
        fn whatever_is_rewritten_is_a_path_below_the_new_prefix(
            path in "(/[a-z0-9.~%-]{0,6}){1,6}",
            segments in 0_usize..4,
            prefix in "(/[a-z]{1,4}){0,3}/?",
        ) {
            let Ok(asked) = path.parse() else { return Ok(()) };
            let Ok(clean) = CleanPath::of(&asked) else { return Ok(()) };
            let rewritten = upstream_path(&clean, Some(&PathRewrite::new(segments, &prefix))).unwrap();
            let bare = prefix.trim_end_matches('/');
            prop_assert!(rewritten.path().starts_with('/') && rewritten.path().starts_with(bare));
            prop_assert!(!rewritten.path().contains("//"), "{}", rewritten);
            prop_assert!(!rewritten.path().contains("/../"), "{}", rewritten);
        }
    }
}
