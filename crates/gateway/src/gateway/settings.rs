//! What may change while the gateway runs: its routes, its policy, and whose word counts about who a caller is.

use std::sync::Arc;

use http::HeaderName;
use spile_policy::Policy;
use spile_tower::client::Networks;

use crate::auth::JwtVerifier;
use crate::refusal::RefusalPages;
use crate::route::Route;

/// Routes, a policy, and whose word counts about who a caller is. Replaced whole, by
/// [`Gateway::replace`](crate::Gateway::replace), while requests are served.
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
    /// `None` if the policy in force stays.
    pub(crate) policy: Option<Arc<Policy>>,
}

impl Settings {
    /// No routes, no tokens, no trusted proxies, and the policy that is in force.
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

    /// Serves this route too. The most specific route that matches is taken, in whatever order they are added.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Limits by this policy, and knows its tenants by their API keys. Without one, the policy in force stays.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Knows callers by signed tokens too.
    pub fn jwt(mut self, verifier: impl Into<Arc<JwtVerifier>>) -> Self {
        self.jwt = Some(verifier.into());
        self
    }

    /// Believes what proxies in these networks say about whom they speak for.
    pub fn trusted_proxies(mut self, networks: Networks) -> Self {
        self.trusted = networks;
        self
    }

    /// Refuses with these pages, on routes without pages of their own and where no route matches.
    pub fn refusals(mut self, pages: RefusalPages) -> Self {
        self.refusals = pages;
        self
    }

    /// Reads from this header whom a trusted proxy has authenticated. `X-Forwarded-User` by default.
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
