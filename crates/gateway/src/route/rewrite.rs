//! The path that upstreams are asked for, where it is not the client's.

use http::uri::PathAndQuery;

use spile_policy::CleanPath;

/// Replaces the first segments of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rewrite {
    /// How many segments go.
    pub(crate) segments: usize,
    /// What comes in their place: nothing, or a path without a final slash.
    pub(crate) prefix: Box<str>,
}

/// The path and query for the upstream.
pub(crate) fn upstream_path(path: &CleanPath, rewrite: Option<&Rewrite>) -> PathAndQuery {
    if let (Some(untouched), None) = (path.untouched(), rewrite) {
        return untouched.clone();
    }
    let mut text = match rewrite {
        None => path.forwarded().to_owned(),
        Some(rewrite) => rewrite.apply(path.forwarded()),
    };
    if let Some(query) = path.query() {
        text.push('?');
        text.push_str(query);
    }
    // A clean path with another clean path before it is a path; the root stands in where that ever fails.
    PathAndQuery::try_from(text).unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

impl Rewrite {
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
            assert_eq!(Rewrite::new(segments, prefix).apply(path), expected, "{path}");
        }
    }

    #[test]
    fn the_query_stays() {
        let path = CleanPath::of(&"/scores/./7?a=/scores".parse().unwrap()).unwrap();
        assert_eq!(upstream_path(&path, Some(&Rewrite::new(1, ""))), "/7?a=/scores");
        assert_eq!(upstream_path(&path, None), "/scores/7?a=/scores");
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_rewritten_is_a_path_below_the_new_prefix(
            path in "(/[a-z0-9.~%-]{0,6}){1,6}",
            segments in 0_usize..4,
            prefix in "(/[a-z]{1,4}){0,3}/?",
        ) {
            let Ok(asked) = path.parse() else { return Ok(()) };
            let Ok(clean) = CleanPath::of(&asked) else { return Ok(()) };
            let rewritten = upstream_path(&clean, Some(&Rewrite::new(segments, &prefix)));
            let bare = prefix.trim_end_matches('/');
            prop_assert!(rewritten.path().starts_with('/') && rewritten.path().starts_with(bare));
            prop_assert!(!rewritten.path().contains("//"), "{}", rewritten);
            prop_assert!(!rewritten.path().contains("/../"), "{}", rewritten);
        }
    }
}
