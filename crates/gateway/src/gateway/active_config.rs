//! The configuration that applies to requests.

use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use http::Response;
use spile_policy::Policy;

use super::{GatewayBuildError, Settings};
use crate::auth::{Authenticator, TrustedProxies};
use crate::refusal::{GatewayRefusal, RefusalPages};
use crate::route::{Route, RouteState, RouteTable};
use crate::upstream::{ConnectionPool, Upstream};

/// The settings in force and one worker's connections to upstreams. It never changes: new settings make a new one, and a
/// request keeps the one that it started with until its last byte.
#[derive(Clone)]
pub(crate) struct ActiveConfig {
    /// All workers have the same routes.
    pub(crate) table: Arc<RouteTable>,
    pub(crate) auth: Authenticator,
    pub(crate) trusted_proxies: Arc<TrustedProxies>,
    refusals: Arc<RefusalPages>,
    pools: Arc<WorkerPools>,
}

/// The connections of one worker. Empty in the configuration that is not yet any worker's.
#[derive(Default)]
struct WorkerPools {
    /// For each route, a pool for each of its endpoints.
    by_route: Box<[Box<[Arc<ConnectionPool>]>]>,
    by_upstream: HashMap<Upstream, Arc<ConnectionPool>>,
}

impl ActiveConfig {
    /// Puts settings in force, for no worker yet. Routes that were served `before` keep the state of their upstreams. The policy stays if
    /// the settings have none.
    pub(crate) fn new(settings: Settings, before: Option<&Self>) -> Result<Self, GatewayBuildError> {
        let Settings { routes, jwt, trusted, principal_header, refusals, policy } = settings;
        if let Some(route) = routes.iter().find(|route| route.upstreams.is_empty()) {
            return Err(GatewayBuildError::NoUpstream(route.name.to_string()));
        }
        let policy = policy.or_else(|| before.map(|before| Arc::clone(&before.auth.policy)));
        Ok(Self {
            table: Arc::new(RouteTable::new(routes, before.map(|before| &*before.table))),
            auth: Authenticator { policy: policy.unwrap_or_default(), jwt },
            trusted_proxies: Arc::new(TrustedProxies::new(trusted, principal_header)),
            refusals: Arc::new(refusals),
            pools: Arc::default(),
        })
    }

    /// Returns this configuration for one worker. Its connections to upstreams that it served `before` are kept.
    pub(crate) fn for_worker(&self, before: Option<&Self>) -> Self {
        let pools = WorkerPools::new(&self.table, before.map(|before| &*before.pools));
        Self { pools: Arc::new(pools), ..self.clone() }
    }

    /// Returns this configuration under another policy.
    pub(crate) fn with_policy(&self, policy: Arc<Policy>) -> Self {
        Self { auth: Authenticator { policy, jwt: self.auth.jwt.clone() }, ..self.clone() }
    }

    pub(crate) fn route(&self, index: usize) -> &RouteState {
        &self.table.routes()[index]
    }

    /// The worker's connections to each endpoint of a route, in the order of the endpoints.
    pub(crate) fn pools(&self, route: usize) -> &[Arc<ConnectionPool>] {
        &self.pools.by_route[route]
    }

    /// Closes connections that were idle for too long, or lead to an address that the upstream's name no longer has.
    pub(crate) fn sweep_pools(&self) {
        self.pools.by_upstream.values().for_each(|pool| pool.sweep());
    }

    /// The response for a refusal, with the page of the route or the gateway if there is one. gRPC calls never get a
    /// page.
    pub(crate) fn refuse(
        &self,
        refusal: GatewayRefusal,
        route: Option<&Route>,
        grpc: bool,
    ) -> Response<Bytes> {
        let mut response = refusal.into_response(grpc);
        route.map_or(&*self.refusals, |route| &route.refusals).apply(&self.refusals, &mut response);
        response
    }
}

impl WorkerPools {
    /// One pool for each upstream, shared by all routes to it. Pools that existed `before` are kept.
    #[expect(
        clippy::mutable_key_type,
        reason = "upstreams are compared by the paths of their TLS files alone"
    )]
    fn new(table: &RouteTable, before: Option<&Self>) -> Self {
        let mut by_upstream: HashMap<Upstream, Arc<ConnectionPool>> = HashMap::default();
        let mut pool_of = |upstream: &Upstream| {
            let existing = by_upstream.get(upstream).or_else(|| before?.by_upstream.get(upstream)).cloned();
            let pool = existing.unwrap_or_default();
            by_upstream.entry(upstream.clone()).or_insert(pool).clone()
        };
        let mut route_pools = |route: &Arc<RouteState>| {
            route.balancer.endpoints().iter().map(|endpoint| pool_of(&endpoint.upstream)).collect()
        };
        let by_route = table.routes().iter().map(&mut route_pools).collect();
        Self { by_route, by_upstream }
    }
}
