//! The settings of a route.

use spile_policy::{HostError, HostPattern, PathPattern, PatternError};
use spile_tower::cost::{BytesPerToken, CostSource, ErrorCost, Estimate, UnreadCost};

use crate::auth::Caller;
use crate::limit::{Adaptive, RouteConcurrency};
use crate::refusal::GatewayRefusal;
use crate::refusal::RefusalPages;
use crate::route::rewrite::{PathRewrite, RewriteError, check_prefix};
use crate::route::{HeaderChanges, Timeouts};
use crate::upstream::{Balance, HealthCheck, Upstream, UpstreamTls};

/// The largest request body by default.
const MAX_BODY: u64 = 64 * 1024 * 1024;

/// Which requests go to which upstreams, and how.
///
/// ```
/// use spile_gateway::Route;
///
/// let scores = Route::new("/scores", ["http://127.0.0.1:9000".parse()?])?.require_auth(true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a route does nothing until a gateway has it"]
pub struct Route {
    pub(crate) name: Box<str>,
    pub(crate) path: PathPattern,
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) balance: Balance,
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: u8,
    pub(crate) require_auth: bool,
    pub(crate) max_body: u64,
    pub(crate) strip_prefix: bool,
    pub(crate) new_prefix: Option<Box<str>>,
    pub(crate) request_changes: HeaderChanges,
    pub(crate) response_changes: HeaderChanges,
    pub(crate) rate_limit_headers: bool,
    pub(crate) refusals: RefusalPages,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) allowed_plans: Vec<Box<str>>,
    pub(crate) upgrades: Vec<Box<str>>,
    pub(crate) cost_from_response: Option<CostSource>,
    pub(crate) estimate: Option<Estimate>,
    pub(crate) unread_cost: Option<UnreadCost>,
    pub(crate) error_cost: ErrorCost,
    pub(crate) upgrade_cost: Option<BytesPerToken>,
    pub(crate) adaptive: Option<Adaptive>,
    pub(crate) concurrency: Option<RouteConcurrency>,
}

impl Route {
    /// A route that sends requests for this path, and all paths below it, to these upstreams.
    pub fn new(path: &str, upstreams: impl IntoIterator<Item = Upstream>) -> Result<Self, PatternError> {
        Ok(Self {
            name: path.into(),
            path: PathPattern::prefix(path)?,
            hosts: Vec::new(),
            upstreams: upstreams.into_iter().collect(),
            balance: Balance::default(),
            timeouts: Timeouts::default(),
            retries: 1,
            require_auth: false,
            max_body: MAX_BODY,
            strip_prefix: false,
            new_prefix: None,
            request_changes: HeaderChanges::default(),
            response_changes: HeaderChanges::default(),
            rate_limit_headers: true,
            refusals: RefusalPages::default(),
            health: None,
            allowed_plans: Vec::new(),
            upgrades: vec!["websocket".into()],
            cost_from_response: None,
            estimate: None,
            unread_cost: None,
            error_cost: ErrorCost::default(),
            upgrade_cost: None,
            adaptive: None,
            concurrency: None,
        })
    }

    /// Sets the name in metrics and in the policy. The path by default.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Matches this host too. A route without hosts matches all.
    pub fn host(mut self, host: &str) -> Result<Self, HostError> {
        self.hosts.push(host.parse()?);
        Ok(self)
    }

    /// Sets how requests are spread over the upstreams.
    pub const fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// Sets how long to wait for the upstreams.
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets how often a request is retried if no upstream has run it. A request that may have run is retried at most
    /// once, only if it is idempotent and has no body, and never with 0 retries. Once by default, and never for more
    /// than one request in five.
    pub const fn retries(mut self, retries: u8) -> Self {
        self.retries = retries;
        self
    }

    /// Whether requests without a valid credential are refused with 401.
    pub const fn require_auth(mut self, required: bool) -> Self {
        self.require_auth = required;
        self
    }

    /// Sets the largest request body, in bytes. 64 MiB by default.
    pub const fn max_body(mut self, bytes: u64) -> Self {
        self.max_body = bytes;
        self
    }

    /// Whether the route's path is removed before the request is forwarded.
    pub const fn strip_prefix(mut self, strip: bool) -> Self {
        self.strip_prefix = strip;
        self
    }

    /// Replaces the route's path by this one before the request is forwarded.
    pub fn rewrite_prefix(mut self, prefix: &str) -> Result<Self, RewriteError> {
        check_prefix(prefix)?;
        self.new_prefix = Some(prefix.into());
        Ok(self)
    }

    /// Changes the header of requests, after everything that the gateway itself writes.
    pub fn request_headers(mut self, changes: HeaderChanges) -> Self {
        self.request_changes = changes;
        self
    }

    /// Changes the header of responses, after everything that the gateway itself writes. In the gateway's own
    /// responses, fields about content and caching are not changed.
    pub fn response_headers(mut self, changes: HeaderChanges) -> Self {
        self.response_changes = changes;
        self
    }

    /// Sets whether responses report limits in `X-RateLimit-…` and `RateLimit` fields. `Retry-After` is sent in any case.
    pub const fn rate_limit_headers(mut self, shown: bool) -> Self {
        self.rate_limit_headers = shown;
        self
    }

    /// Renders refusals with these pages. Kinds that have none use the gateway's.
    pub fn refusals(mut self, pages: RefusalPages) -> Self {
        self.refusals = pages;
        self
    }

    /// Checks the health of the upstreams, and sends no requests to unhealthy ones.
    pub fn health_check(mut self, check: HealthCheck) -> Self {
        self.health = Some(check);
        self
    }

    /// Allows only tenants on one of these plans. Others are refused with 403.
    pub fn only_plans<'p>(mut self, plans: impl IntoIterator<Item = &'p str>) -> Self {
        self.allowed_plans = plans.into_iter().map(Into::into).collect();
        self
    }

    /// Allows connections to be upgraded to these protocols only. `websocket` by default.
    pub fn upgrades<'p>(mut self, protocols: impl IntoIterator<Item = &'p str>) -> Self {
        self.upgrades = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets where responses report the final cost of a request. The difference from the earlier charge is charged or refunded, even if
    /// the client leaves: a client that disconnects does not end the request, and the rest of the body is read for its cost. If the cost
    /// is in the body, the upstream is asked for a whole one that is not compressed. Connections are not upgraded without an
    /// [`upgrade_cost`](Self::upgrade_cost).
    pub fn cost_from_response(mut self, source: CostSource) -> Self {
        self.cost_from_response = Some(source);
        self
    }

    /// Sets the charge that replaces the cost of each rule until responses report their cost.
    pub fn estimate(mut self, estimate: Estimate) -> Self {
        self.estimate = Some(estimate);
        self
    }

    /// Sets the minimum cost of a response whose cost cannot be read. By default it is one token for every 4 bytes of the body, and
    /// nothing if the cost is in a header field. No such response costs less than the earlier charge.
    pub const fn unread_cost(mut self, cost: UnreadCost) -> Self {
        self.unread_cost = Some(cost);
        self
    }

    /// Sets the cost of an error of the upstream that reports no cost. By default it is the cost of each rule, in place of the estimate.
    pub const fn error_cost(mut self, cost: ErrorCost) -> Self {
        self.error_cost = cost;
        self
    }

    /// Allows upgraded connections on a route with [`cost_from_response`](Self::cost_from_response), and charges their bytes in both
    /// directions. They cost no less than the earlier charge.
    pub const fn upgrade_cost(mut self, price: BytesPerToken) -> Self {
        self.upgrade_cost = Some(price);
        self
    }

    /// Lowers the limits of this route while its upstreams fail or are slow.
    pub const fn adaptive(mut self, settings: Adaptive) -> Self {
        self.adaptive = Some(settings);
        self
    }

    /// Caps the requests in flight at each upstream. Callers take turns in the queue.
    pub const fn concurrency(mut self, settings: RouteConcurrency) -> Self {
        self.concurrency = Some(settings);
        self
    }

    /// Sets TLS for `https://` upstreams: authorities, client certificate and server name.
    pub fn upstream_tls(mut self, tls: &UpstreamTls) -> Self {
        for upstream in self.upstreams.iter_mut().filter(|upstream| upstream.speaks_tls()) {
            upstream.tls = Some(tls.clone());
        }
        self
    }

    /// Whether the other is the same route with other settings: the same name and the same hosts.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.hosts == other.hosts
    }

    /// True if upgraded connections are refused, because they have no price.
    pub(crate) const fn refuses_upgrades(&self) -> bool {
        self.cost_from_response.is_some() && self.upgrade_cost.is_none()
    }

    /// How the path is rewritten, if it is.
    pub(crate) fn rewrite(&self) -> Option<PathRewrite> {
        let segments = self.path.depth();
        match (&self.new_prefix, self.strip_prefix) {
            (Some(prefix), _) => Some(PathRewrite::new(segments, prefix)),
            (None, true) => Some(PathRewrite::new(segments, "")),
            (None, false) => None,
        }
    }

    /// Refuses callers that may not use the route.
    pub(crate) fn authorize(&self, caller: &Caller) -> Result<(), GatewayRefusal> {
        if self.require_auth && caller.is_anonymous() {
            return Err(GatewayRefusal::Unauthenticated(
                "a credential is required: send X-API-Key or a bearer token",
            ));
        }
        let on_plan = |allowed: &str| caller.plan() == Some(allowed);
        if !self.allowed_plans.is_empty() && !self.allowed_plans.iter().any(|allowed| on_plan(allowed)) {
            return Err(GatewayRefusal::Forbidden("the plan does not include this route"));
        }
        Ok(())
    }
}
