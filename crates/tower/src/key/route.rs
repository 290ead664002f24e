//! The key is the route that the router chose.

use std::sync::Arc;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// The route that a request was matched to, for routers other than axum's. Put it into the request's
/// extensions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MatchedRoute(pub Arc<str>);

/// Reads the key from the matched route: `route:/scores/{id}`.
///
/// Finds a [`MatchedRoute`] in the request's extensions or, with the feature `axum`, axum's `MatchedPath`. `None`
/// if the request matched no route.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteKey;

impl KeyResolver for RouteKey {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let route = route_of(request)?;
        Some(ResolvedKey::of(&["route:", route]))
    }
}

#[cfg(feature = "axum")]
fn route_of(request: &Parts) -> Option<&str> {
    use axum::extract::MatchedPath;

    let own = request.extensions.get::<MatchedRoute>().map(|MatchedRoute(route)| &**route);
    own.or_else(|| request.extensions.get::<MatchedPath>().map(MatchedPath::as_str))
}

#[cfg(not(feature = "axum"))]
fn route_of(request: &Parts) -> Option<&str> {
    request.extensions.get::<MatchedRoute>().map(|MatchedRoute(route)| &**route)
}
