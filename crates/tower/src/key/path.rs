//! The key is the path, normalized.

use http::request::Parts;

use spile_policy::CleanPath;

use super::{KeyResolver, ResolvedKey};

/// Reads the key from the path of the request: `path:/scores/7`. `/./scores//7` is the same one.
///
/// The client chooses the path, so the number of keys is unbounded. If a router knows the route, [`RouteKey`](super::RouteKey) makes one bucket of `/scores/7` and `/scores/8`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathKey;

impl KeyResolver for PathKey {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        // A path that can be read in two ways is used as it is.
        let clean = request.uri.path_and_query().and_then(|asked| CleanPath::of(asked).ok());
        let path = clean.as_ref().map_or_else(|| request.uri.path(), CleanPath::matched);
        Some(ResolvedKey::path(path))
    }
}
