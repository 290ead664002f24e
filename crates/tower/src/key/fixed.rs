//! The key is always the same: one bucket for all requests.

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// One key for every request: `static:everyone`. For a limit on the whole service.
#[derive(Clone, Debug)]
pub struct Fixed(ResolvedKey);

impl Fixed {
    /// The key that every request gets.
    pub fn new(name: &str) -> Self {
        Self(ResolvedKey::of(&["static:", name]))
    }
}

impl KeyResolver for Fixed {
    fn resolve(&self, _request: &Parts) -> Option<ResolvedKey> {
        Some(self.0.clone())
    }
}
