//! All routes, and which of them serves a request.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use spile_policy::HostPattern;

use super::settings::Route;
use super::state::RouteState;
use crate::route::RequestTarget;
use crate::upstream::Upstream;

/// Finds the route of a request.
#[derive(Debug)]
pub(crate) struct RouteTable {
    routes: Box<[Arc<RouteState>]>,
    /// One entry for each host of each route, the most specific first.
    host_routes: Box<[HostRoute]>,
}

/// One host of one route.
#[derive(Debug)]
struct HostRoute {
    /// `None` for a route that matches all hosts.
    host: Option<HostPattern>,
    route: usize,
}

impl RouteTable {
    /// A table of these routes. Routes that were served `before` keep what is known of their upstreams.
    pub(crate) fn new(routes: Vec<Route>, before: Option<&Self>) -> Self {
        let mut host_routes: Vec<HostRoute> = routes.iter().enumerate().flat_map(host_routes_of).collect();
        // The sort is stable, so of two routes for the same requests the first one wins.
        host_routes.sort_by_key(|entry| {
            let host = entry.host.as_ref().map(HostPattern::specificity);
            Reverse((host, routes[entry.route].path.specificity()))
        });
        let known = |route: &Route| before?.routes.iter().find(|served| served.settings.is_same(route));
        let serve = |route| {
            let known = known(&route).map(|served| &**served);
            Arc::new(RouteState::new(route, known))
        };
        Self { routes: routes.into_iter().map(serve).collect(), host_routes: host_routes.into() }
    }

    pub(crate) fn routes(&self) -> &[Arc<RouteState>] {
        &self.routes
    }

    /// The host names of upstreams, which have to be resolved.
    pub(crate) fn names(&self) -> HashSet<Box<str>> {
        self.upstreams().filter_map(Upstream::name).map(Into::into).collect()
    }

    /// Reads certificates and keys for upstreams again if their files have changed.
    pub(crate) fn refresh_files(&self) {
        let mut refreshed = HashSet::new();
        for tls in self.upstreams().filter_map(|upstream| upstream.tls.as_ref()) {
            // Upstreams may share their TLS settings.
            if refreshed.insert(tls.identity()) {
                tls.refresh();
            }
        }
    }

    /// The index of the route for the target: the most specific host that matches, then the most specific path.
    pub(crate) fn find(&self, target: &RequestTarget) -> Option<usize> {
        let is_for = |entry: &&HostRoute| {
            entry.host.as_ref().is_none_or(|host| host.matches(&target.host))
                && self.routes[entry.route].settings.path.matches(target.path.matched())
        };
        self.host_routes.iter().find(is_for).map(|entry| entry.route)
    }

    fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.routes.iter().flat_map(|served| served.balancer.endpoints()).map(|endpoint| &endpoint.upstream)
    }
}

fn host_routes_of((route, settings): (usize, &Route)) -> Vec<HostRoute> {
    match &settings.hosts[..] {
        [] => vec![HostRoute { host: None, route }],
        hosts => hosts.iter().cloned().map(|host| HostRoute { host: Some(host), route }).collect(),
    }
}
