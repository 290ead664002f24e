//! How a gateway is put together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use spile_core::{Clock, Store, SystemClock};
use spile_limiter::RateLimiter;
use spile_listener::{Bounds, Guesses, Listener, RequestMetrics, Tls};
use spile_observe::trace::Tracer;
use spile_policy::Policy;
use spile_tower::client::Networks;
use spile_tower::response::Fields;

use crate::auth::JwtVerifier;
use crate::gateway::Gateway;
use crate::gateway::Live;
use crate::gateway::Settings;
use crate::gateway::Shared;
use crate::gateway::metrics;
use crate::limit::Limits;
use crate::refusal::RefusalPages;
use crate::route::Route;
use crate::upstream::{Dialer, Resolver, Roots, UpstreamTls};

/// How a [`Gateway`] is put together. Without routes it answers 404.
#[must_use = "call build()"]
pub struct Builder<S> {
    limiter: RateLimiter<S>,
    settings: Settings,
    tls: Option<Tls>,
    fields: Fields,
    roots: Roots,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
    tracer: Option<Tracer>,
}

impl<S: Store> Builder<S> {
    pub(crate) fn new(limiter: RateLimiter<S>) -> Self {
        Self {
            limiter,
            settings: Settings::new(),
            tls: None,
            fields: Fields::default(),
            roots: Roots::default(),
            bounds: Bounds::default(),
            clock: Arc::new(SystemClock::new()),
            tracer: None,
        }
    }

    /// Serves this route too. The most specific route that matches is taken, in whatever order they are added.
    pub fn route(mut self, route: Route) -> Self {
        self.settings = self.settings.route(route);
        self
    }

    /// Limits by this policy, and knows its tenants by their API keys. Without one, nothing is limited.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.settings = self.settings.policy(policy);
        self
    }

    /// Knows callers by signed tokens too.
    pub fn jwt(mut self, verifier: JwtVerifier) -> Self {
        self.settings = self.settings.jwt(verifier);
        self
    }

    /// Speaks TLS with clients, and nothing else.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Believes what proxies in these networks say about whom they speak for.
    pub fn trusted_proxies(mut self, networks: Networks) -> Self {
        self.settings = self.settings.trusted_proxies(networks);
        self
    }

    /// Refuses with these pages, on routes without pages of their own and where no route matches.
    pub fn refusals(mut self, pages: RefusalPages) -> Self {
        self.settings = self.settings.refusals(pages);
        self
    }

    /// Tells clients of limits in these header fields.
    pub const fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Believes TLS upstreams that these authorities vouch for, on routes that say nothing else.
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    /// Puts up with this much.
    pub const fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Tells the time by `clock`: durations by its time, and what tokens and clients are told by its wall time. A clock
    /// that follows the wall clock's steps, as no [`SystemClock`] does, makes durations wrong.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes spans of requests, decisions and proxying, and tells upstreams which trace they are part of. Without a
    /// tracer, what clients say about traces goes through as it is.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Starts from these settings, in place of whatever was said about routes, policy, tokens and proxies so far.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The gateway, unless a route has no upstream or TLS cannot be set up.
    pub fn build(self) -> Result<Gateway<S>, BuildError> {
        metrics::describe();
        let limits = Limits {
            limiter: self.limiter,
            fields: self.fields,
            clock: Arc::clone(&self.clock),
            tracer: self.tracer.clone(),
        };
        Ok(Gateway::from(Shared {
            live: Live::new(self.settings)?,
            limits,
            dialer: Dialer::new(
                UpstreamTls::trusting(&self.roots)?,
                Resolver::system(),
                self.bounds.stream_window,
            ),
            listener: Listener::new("gateway", &self.bounds).tls(self.tls),
            bounds: self.bounds,
            guesses: Guesses::default(),
            metrics: RequestMetrics::new("gateway"),
            clock: self.clock,
            tracer: self.tracer,
            checking: AtomicBool::new(false),
        }))
    }
}

/// Why a gateway cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A route leads nowhere.
    #[error("route {0} has no upstream: give it one or more")]
    NoUpstream(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}
