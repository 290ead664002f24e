//! The settings that can be replaced while the gateway runs.

use std::sync::Arc;

use http::HeaderName;
use spile_policy::Policy;
use spile_tower::client::Networks;

use crate::auth::JwtVerifier;
use crate::refusal::RefusalPages;
use crate::route::Route;

/// The settings that can be replaced while requests are served, all at once, by
/// [`Gateway::replace`](crate::Gateway::replace): routes, policy, tokens and trusted proxies.
///
/// ```
/// use spile_gateway::{Route, Settings};
///
/// let settings = Settings::new().route(Route::new("/", ["http://127.0.0.1:9000".parse()?])?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "settings do nothing until a gateway has them"]
pub struct Settings {
    pub(crate) routes: Vec<Route>,
    pub(crate) jwt: Option<Arc<JwtVerifier>>,
    pub(crate) trusted: Networks,
    pub(crate) principal_header: HeaderName,
    pub(crate) refusals: RefusalPages,
    /// `None` to keep the policy that is in force.
    pub(crate) policy: Option<Arc<Policy>>,
}

impl Settings {
    /// Settings without routes, tokens or trusted proxies, which keep the policy that is in force.
    pub fn new() -> Self {
        Self {
            routes: Vec::new(),
            jwt: None,
            trusted: Networks::default(),
            principal_header: HeaderName::from_static("x-forwarded-user"),
            refusals: RefusalPages::default(),
            policy: None,
        }
    }

    /// Adds a route. The most specific route that matches a request serves it; the order does not matter.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Limits requests by this policy, which also knows tenants by their API keys.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Accepts signed tokens as credentials.
    pub fn jwt(mut self, verifier: impl Into<Arc<JwtVerifier>>) -> Self {
        self.jwt = Some(verifier.into());
        self
    }

    /// Trusts proxies in these networks to name the client of a request.
    pub fn trusted_proxies(mut self, networks: Networks) -> Self {
        self.trusted = networks;
        self
    }

    /// Renders refusals with these pages, unless the route has pages.
    pub fn refusals(mut self, pages: RefusalPages) -> Self {
        self.refusals = pages;
        self
    }

    /// Reads from this header the user that a trusted proxy has authenticated. `X-Forwarded-User` by default.
    pub fn principal_header(mut self, name: HeaderName) -> Self {
        self.principal_header = name;
        self
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("routes", &self.routes)
            .field("jwt", &self.jwt)
            .finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}
