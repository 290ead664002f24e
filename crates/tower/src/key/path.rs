//! The key is the path, however it was spelt.

use http::request::Parts;

use spile_policy::CleanPath;

use super::{KeyResolver, ResolvedKey};

/// Reads the key from the path of the request: `path:/scores/7`. `/./scores//7` is the same one.
///
/// Paths are what the client chose to write, so that there may be endlessly many. Where a router knows the
/// route, [`MatchedRoute`](super::MatchedRoute) makes one bucket of `/scores/7` and `/scores/8`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path;

impl KeyResolver for Path {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        // One that cannot be read in one way only is a key as it is.
        let clean = request.uri.path_and_query().and_then(|asked| CleanPath::of(asked).ok());
        let path = clean.as_ref().map_or_else(|| request.uri.path(), CleanPath::matched);
        Some(ResolvedKey::path(path))
    }
}
