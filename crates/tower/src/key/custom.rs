//! The key is what a closure returns.

use std::borrow::Cow;
use std::fmt;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// Reads the key with a closure: `custom:LABEL:…`.
///
/// ```
/// # use spile_tower as spile;
/// use spile::key::{Custom, KeyResolver};
///
/// let by_host = Custom::new("host", |request| request.uri.host().map(Into::into));
/// let (parts, ()) = http::Request::get("http://a.example/x").body(())?.into_parts();
/// assert_eq!(by_host.resolve(&parts).unwrap().as_str(), "custom:host:a.example");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone)]
pub struct Custom<F> {
    label: Box<str>,
    find: F,
}

impl<F> Custom<F>
where
    F: for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync,
{
    /// Finds the key with `find`. The label keeps the keys of two closures apart.
    pub fn new(label: &str, find: F) -> Self {
        Self { label: label.into(), find }
    }
}

impl<F> KeyResolver for Custom<F>
where
    F: for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync,
{
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let value = (self.find)(request).filter(|value| !value.is_empty())?;
        Some(ResolvedKey::custom(&self.label, &value))
    }
}

impl<F> fmt::Debug for Custom<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Custom({})", self.label)
    }
}
