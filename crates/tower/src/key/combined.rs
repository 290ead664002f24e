//! Keys made of other keys: the first that is there, or several as one.

use std::fmt;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// Asks several resolvers in turn and takes the first answer: the tenant, else the API key, else the address.
pub struct FirstOf(Box<[Box<dyn KeyResolver>]>);

impl FirstOf {
    /// Asks these, in this order.
    pub fn new(choices: impl IntoIterator<Item = Box<dyn KeyResolver>>) -> Self {
        Self(choices.into_iter().collect())
    }
}

impl KeyResolver for FirstOf {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        self.0.iter().find_map(|choice| choice.resolve(request))
    }

    fn needs_peer(&self) -> bool {
        self.0.iter().any(KeyResolver::needs_peer)
    }
}

impl fmt::Debug for FirstOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FirstOf({} choices)", self.0.len())
    }
}

/// Joins what several resolvers find: a bucket per tenant *and* route.
///
/// `None` if one of them finds no key: strangers would share the bucket of half a combination.
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

    fn needs_peer(&self) -> bool {
        self.0.iter().any(KeyResolver::needs_peer)
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({} parts)", self.0.len())
    }
}
