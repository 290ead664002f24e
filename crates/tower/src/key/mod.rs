//! Who pays for a request: the resolvers that read a key out of it.
//!
//! The trait lives here and not in `spile-core`, because a resolver reads [`http::request::Parts`] and the core
//! knows no HTTP. Services that speak something else give the limiter a key that they made.
//!
//! Every resolver writes its kind into the key (`ip:…`, `tenant:…`), so that a header cannot look like an address. Keys that
//! are too long are hashed, and so are the values of headers. A resolver must not decide whether a request passes.
//!
//! ```
//! # use spile_tower as spile;
//! use spile::key::{ClientIp, KeyResolver, Tenant, TenantKey};
//!
//! // The tenant if authentication found one, else the address.
//! let key = TenantKey.or(ClientIp::direct());
//! let (mut parts, ()) = http::Request::new(()).into_parts();
//! parts.extensions.insert(Tenant::new("acme"));
//! assert_eq!(key.resolve(&parts).unwrap().as_str(), "tenant:acme");
//! ```

use std::sync::Arc;

use http::request::Parts;

mod client_ip;
mod combined;
mod custom;
mod fixed;
mod header;
mod path;
mod principal;
mod route;
mod tenant;

pub use client_ip::ClientIp;
pub use combined::{FirstOf, Joined};
pub use custom::Custom;
pub use fixed::Fixed;
pub use header::HeaderKey;
pub use path::PathKey;
pub use principal::{Principal, PrincipalKey, PrincipalResolver};
pub use route::{MatchedRoute, RouteKey};
pub use spile_policy::ResolvedKey;
pub use tenant::{Tenant, TenantKey};

/// Finds out who pays for a request.
pub trait KeyResolver: Send + Sync {
    /// The key that pays for the request. `None` if the request does not carry it.
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey>;

    /// True if the key may be the address of the connection's peer. A layer whose server does not provide that address
    /// complains once.
    fn needs_peer(&self) -> bool {
        false
    }

    /// Asks `other` if this one finds no key.
    fn or<K>(self, other: K) -> FirstOf
    where
        Self: Sized + 'static,
        K: KeyResolver + 'static,
    {
        FirstOf::new([Box::new(self) as Box<dyn KeyResolver>, Box::new(other)])
    }

    /// One bucket per pair: this key and `other` together. `None` if either finds no key.
    fn and<K>(self, other: K) -> Joined
    where
        Self: Sized + 'static,
        K: KeyResolver + 'static,
    {
        Joined::new([Box::new(self) as Box<dyn KeyResolver>, Box::new(other)])
    }
}

impl<K: KeyResolver + ?Sized> KeyResolver for Box<K> {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        (**self).resolve(request)
    }

    fn needs_peer(&self) -> bool {
        (**self).needs_peer()
    }
}

impl<K: KeyResolver + ?Sized> KeyResolver for Arc<K> {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        (**self).resolve(request)
    }

    fn needs_peer(&self) -> bool {
        (**self).needs_peer()
    }
}
