//! Several keys as one: a bucket for each combination.

use std::fmt;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// Joins what several resolvers find: a bucket per tenant *and* route.
///
/// Nothing where one of them finds nothing: a half-known combination would be a bucket shared by strangers.
pub struct Joined(Box<[Box<dyn KeyResolver>]>);

impl Joined {
    /// Joins these, in this order.
    pub fn new(parts: impl IntoIterator<Item = Box<dyn KeyResolver>>) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl KeyResolver for Joined {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let parts: Option<Vec<_>> = self.0.iter().map(|part| part.resolve(request)).collect();
        let parts = parts.filter(|parts| !parts.is_empty())?;
        Some(ResolvedKey::joined(&parts))
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({} parts)", self.0.len())
    }
}
