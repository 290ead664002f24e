//! Builds a gateway.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use spile_core::{Clock, Store, SystemClock};
use spile_limiter::RateLimiter;
use spile_listener::{Bounds, GuessLimiter, Listener, RequestMetrics, Tls};
use spile_observe::trace::Tracer;
use spile_policy::Policy;
use spile_tower::client::Networks;
use spile_tower::response::HeaderFields;
use tokio::sync::watch;

use super::state::{Configs, GatewayState};
use super::{Gateway, Settings, metrics};
use crate::access_log::{AccessLog, AccessLogError, AccessLogSettings};
use crate::auth::JwtVerifier;
use crate::limit::{DetachedBounds, DetachedExchanges, RateLimits};
use crate::refusal::{RefusalLog, RefusalPages};
use crate::route::Route;
use crate::upstream::{Connector, Resolver, Roots, UpstreamTls};

/// Builds a [`Gateway`]. Without routes it answers every request with 404.
#[must_use = "call build()"]
pub struct GatewayBuilder<S> {
    limiter: RateLimiter<S>,
    settings: Settings,
    tls: Option<Tls>,
    fields: HeaderFields,
    roots: Roots,
    bounds: Bounds,
    detached: DetachedBounds,
    clock: Arc<dyn Clock>,
    tracer: Option<Tracer>,
    access_log: Option<AccessLogSettings>,
}

impl<S: Store> GatewayBuilder<S> {
    pub(crate) fn new(limiter: RateLimiter<S>) -> Self {
        Self {
            limiter,
            settings: Settings::new(),
            tls: None,
            fields: HeaderFields::default(),
            roots: Roots::default(),
            bounds: Bounds::default(),
            detached: DetachedBounds::default(),
            clock: Arc::new(SystemClock::new()),
            tracer: None,
            access_log: None,
        }
    }

    /// Adds a route. The most specific route that matches a request serves it; the order does not matter.
    pub fn route(mut self, route: Route) -> Self {
        self.settings = self.settings.route(route);
        self
    }

    /// Limits requests by this policy, which also knows tenants by their API keys. There are no limits without one.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.settings = self.settings.policy(policy);
        self
    }

    /// Accepts signed tokens as credentials.
    pub fn jwt(mut self, verifier: JwtVerifier) -> Self {
        self.settings = self.settings.jwt(verifier);
        self
    }

    /// Serves clients over TLS only.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Trusts proxies in these networks to name the client of a request.
    pub fn trusted_proxies(mut self, networks: Networks) -> Self {
        self.settings = self.settings.trusted_proxies(networks);
        self
    }

    /// Renders refusals with these pages, unless the route has pages.
    pub fn refusals(mut self, pages: RefusalPages) -> Self {
        self.settings = self.settings.refusals(pages);
        self
    }

    /// Chooses the header fields that report limits to clients.
    pub const fn fields(mut self, fields: HeaderFields) -> Self {
        self.fields = fields;
        self
    }

    /// Trusts these authorities for TLS upstreams of routes without TLS settings.
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    /// Sets the bounds for clients: connections, sizes and timeouts.
    pub const fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets how many exchanges may continue after their client has disconnected, so that the cost of their answer is read.
    pub const fn detached(mut self, bounds: DetachedBounds) -> Self {
        self.detached = bounds;
        self
    }

    /// Uses this clock: its monotonic time for durations, and its wall time for tokens and header fields. Durations are
    /// wrong if the monotonic time follows steps of the wall clock, which that of [`SystemClock`] does not.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Traces requests, decisions and proxying, and passes the trace on to upstreams. Without a tracer, the trace
    /// headers of clients are forwarded as they are.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Writes a line for each request to an access log, on a dedicated thread.
    pub fn access_log(mut self, settings: AccessLogSettings) -> Self {
        self.access_log = Some(settings);
        self
    }

    /// Replaces all settings so far: routes, policy, tokens, proxies and pages.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Builds the gateway. Fails if a route has no upstream, TLS cannot be set up or the access log cannot be opened.
    pub fn build(self) -> Result<Gateway<S>, GatewayBuildError> {
        metrics::describe();
        let limits = RateLimits {
            limiter: self.limiter,
            fields: self.fields,
            clock: Arc::clone(&self.clock),
            tracer: self.tracer.clone(),
        };
        let tls = UpstreamTls::trusting(&self.roots)?;
        let open = |settings| AccessLog::open(settings, Arc::clone(&self.clock));
        let access_log = self.access_log.map(open).transpose()?;
        Ok(Gateway(Arc::new(GatewayState {
            configs: Mutex::new(Configs::new(self.settings)?),
            route_changes: watch::Sender::new(()),
            limits,
            connector: Connector::new(tls, Resolver::system(), self.bounds.stream_window),
            listener: Listener::new("gateway", &self.bounds).tls(self.tls),
            detached: Arc::new(DetachedExchanges::new(self.detached, &self.bounds)),
            bounds: self.bounds,
            guesses: GuessLimiter::default(),
            metrics: RequestMetrics::new("gateway"),
            clock: self.clock,
            access_log,
            refusal_log: RefusalLog::default(),
            tracer: self.tracer,
            has_background_tasks: AtomicBool::new(false),
        })))
    }
}

/// Why a gateway cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayBuildError {
    /// A route has no upstream.
    #[error("route {0} has no upstream: give it one or more")]
    NoUpstream(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The access log cannot be opened.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
}
