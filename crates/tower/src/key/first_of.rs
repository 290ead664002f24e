//! The first key that is there.

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
}

impl fmt::Debug for FirstOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FirstOf({} choices)", self.0.len())
    }
}
