//! The key is the path, as it was asked for.

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// Reads the key from the path of the request: `path:/scores/7`.
///
/// Paths are what the client chose to write, so that there may be endlessly many. Where a router knows the
/// route, [`MatchedRoute`](super::MatchedRoute) makes one bucket of `/scores/7` and `/scores/8`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path;

impl KeyResolver for Path {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        Some(ResolvedKey::of(&["path:", request.uri.path()]))
    }
}
