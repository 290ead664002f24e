//! What may change while the gateway runs: its routes, its rules, and whose word counts about who a caller is.

use std::sync::Arc;

use spile_tower::client::Networks;

use crate::auth::{JwtVerifier, TenantRegistry};
use crate::limit::Rulebook;
use crate::route::Route;

/// Routes, rules, tenants, and whose word counts about who a caller is. Replaced whole, by
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
    pub(crate) ipv6_prefix: u8,
    /// Nothing where those in force are meant.
    pub(crate) rulebook: Option<Arc<dyn Rulebook>>,
    pub(crate) tenants: Option<Arc<dyn TenantRegistry>>,
}

impl Settings {
    /// No routes, no tokens, no trusted proxies, and the rules and tenants that are in force.
    pub fn new() -> Self {
        Self {
            routes: Vec::new(),
            jwt: None,
            trusted: Networks::default(),
            ipv6_prefix: 64,
            rulebook: None,
            tenants: None,
        }
    }

    /// Serves this route too. The most specific route that matches is taken, in whatever order they are added.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Limits by what this rulebook says. Without one, the rules in force stay.
    pub fn rulebook(mut self, rulebook: impl Rulebook + 'static) -> Self {
        self.rulebook = Some(Arc::new(rulebook));
        self
    }

    /// Knows these tenants by their API keys. Without any, those in force stay.
    pub fn tenants(mut self, tenants: impl TenantRegistry + 'static) -> Self {
        self.tenants = Some(Arc::new(tenants));
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

    /// Counts requests without another key by IPv6 networks of this prefix. 64 by default.
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
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
