//! The key is the authenticated user.

use std::borrow::Cow;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// The authenticated user. Authentication puts it into the request's extensions, and [`PrincipalKey`] finds it there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Principal(pub String);

/// Finds the authenticated user, for services whose authentication does not leave a [`Principal`].
pub trait PrincipalResolver: Send + Sync {
    /// The name or id of the authenticated user. `None` if the request is not authenticated.
    fn principal<'r>(&self, request: &'r Parts) -> Option<Cow<'r, str>>;
}

/// Reads the key from the authenticated user: `principal:…`.
#[derive(Clone, Copy, Debug)]
pub struct PrincipalKey<P = FromExtension>(P);

impl PrincipalKey {
    /// Reads the [`Principal`] in the request's extensions.
    pub const fn new() -> Self {
        Self(FromExtension)
    }
}

impl Default for PrincipalKey {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: PrincipalResolver> PrincipalKey<P> {
    /// Asks `resolver` for the authenticated user.
    pub const fn by(resolver: P) -> Self {
        Self(resolver)
    }
}

impl<P: PrincipalResolver> KeyResolver for PrincipalKey<P> {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let principal = self.0.principal(request).filter(|name| !name.is_empty())?;
        Some(ResolvedKey::of(&["principal:", &principal]))
    }
}

/// Finds the [`Principal`] in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct FromExtension;

impl PrincipalResolver for FromExtension {
    fn principal<'r>(&self, request: &'r Parts) -> Option<Cow<'r, str>> {
        request.extensions.get::<Principal>().map(|Principal(name)| Cow::Borrowed(name.as_str()))
    }
}
