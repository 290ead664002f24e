//! The layer and its builder.

mod admission;
mod future;
mod service;
mod state;
mod wall_clock;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use spile_core::{Clock, FailurePolicy, Store};
use spile_limiter::{RateLimiter, UnknownPlan};
use tower_layer::Layer;

pub use self::admission::Admission;
pub use self::future::ResponseFuture;
pub use self::service::RateLimit;
pub use self::state::Keyless;
use self::state::LayerState;
use self::wall_clock::CachedWallClock;
use crate::client::{ClientAddress, Networks};
use crate::response::{HeaderFields, RefusedRequest};
use crate::rule::Rule;

/// Limits the requests of any tower HTTP stack.
///
/// ```
/// # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; pub use spile_tower::*; }
/// use spile::key::ClientIp;
/// use spile::{Limit, MemoryStore, Plan, RateLimitLayer, RateLimiter, Rule};
///
/// let free = Plan::new("free", Limit::per_second(1).burst(10))?;
/// let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([free]).build();
/// let layer = RateLimitLayer::new(limiter, Rule::new(ClientIp::direct(), "free"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Several rules in one layer are one decision: all of them are charged, or none is. Several layers on one route decide one
/// after the other, and what the outer one has spent stays spent if the inner one denies.
///
/// If a limit is a concurrency, the layer holds a permit until the last byte of the response, the response's error or its drop, a
/// panic of the service, or the drop of the response's future, which is what a client's hang-up becomes. The response of an
/// upgrade ends with its head: what talks over the connection then holds [`Admission::permit`] itself.
pub struct RateLimitLayer<S> {
    shared: Arc<LayerState<S>>,
}

impl<S: Store> RateLimitLayer<S> {
    /// Limits by this rule. An error if the limiter does not know a plan that the rule names.
    pub fn new(limiter: RateLimiter<S>, rule: Rule) -> Result<Self, UnknownPlan> {
        Self::builder(limiter, rule).build()
    }

    /// Starts to build a layer that limits by this rule.
    pub fn builder(limiter: RateLimiter<S>, rule: Rule) -> RateLimitLayerBuilder<S> {
        RateLimitLayerBuilder(LayerState {
            limiter,
            rules: vec![rule],
            name: None,
            on_failure: None,
            shadow: false,
            keyless: Keyless::default(),
            skips: Vec::new(),
            fields: HeaderFields::default(),
            respond: None,
            clock: Arc::new(CachedWallClock::new()),
            peer_unchecked: AtomicBool::new(false),
        })
    }
}

impl<S, Svc> Layer<Svc> for RateLimitLayer<S> {
    type Service = RateLimit<Svc, S>;

    fn layer(&self, inner: Svc) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl<S> Clone for RateLimitLayer<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.shared).finish()
    }
}

/// Builds a [`RateLimitLayer`]. Everything but the first rule has a default.
#[derive(Debug)]
#[must_use = "call build()"]
pub struct RateLimitLayerBuilder<S>(LayerState<S>);

impl<S: Store> RateLimitLayerBuilder<S> {
    /// Charges by this rule as well: the user *and* the tenant, the tenant *and* the whole service.
    pub fn and(mut self, rule: Rule) -> Self {
        self.0.rules.push(rule);
        self
    }

    /// The name that observers get with each decision.
    pub fn name(mut self, name: &str) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the policy if the store fails. Overrides the limiter's policy.
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.0.on_failure = Some(policy);
        self
    }

    /// Shadow mode: decides and counts, and lets every request pass.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.0.shadow = shadow;
        self
    }

    /// Sets the treatment of a request in which no resolver finds a key. By default it is refused.
    pub const fn keyless(mut self, keyless: Keyless) -> Self {
        self.0.keyless = keyless;
        self
    }

    /// Does not limit requests whose path is exactly one of these: health checks, metrics.
    pub fn skip_paths<P: Into<String>>(self, paths: impl IntoIterator<Item = P>) -> Self {
        let paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        self.skip_if(move |request| paths.iter().any(|path| path == request.uri.path()))
    }

    /// Does not limit requests from these networks, by the address that `address` finds.
    pub fn skip_networks(self, networks: Networks, address: ClientAddress) -> Self {
        self.skip_if(move |request| address.of(request).is_some_and(|client| networks.contain(client)))
    }

    /// Does not limit requests for which `skip` is true.
    pub fn skip_if(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.0.skips.push(Box::new(skip));
        self
    }

    /// Which header fields responses carry.
    pub const fn fields(mut self, fields: HeaderFields) -> Self {
        self.0.fields = fields;
        self
    }

    /// Answers refused requests with what `respond` returns. [`RefusedRequest::response`] is the usual answer, to start from.
    pub fn respond_with(
        mut self,
        respond: impl Fn(&RefusedRequest<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.0.respond = Some(Box::new(respond));
        self
    }

    /// The clock for times of day in responses. Decisions go by the store's clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.0.clock = Arc::new(clock);
        self
    }

    /// The layer. An error if the limiter does not know a plan that a rule names.
    ///
    /// Plans that depend on the request, as those of a tenant or of [`PlansBy`](crate::PlansBy), are not checked: a request
    /// under an unknown plan is answered with 500.
    pub fn build(mut self) -> Result<RateLimitLayer<S>, UnknownPlan> {
        for rule in &self.0.rules {
            rule.fixed_plans().iter().try_for_each(|plan| self.0.limiter.require_plan(plan))?;
        }
        self.0.peer_unchecked = AtomicBool::new(self.0.rules.iter().any(Rule::needs_peer));
        Ok(RateLimitLayer { shared: Arc::new(self.0) })
    }
}
