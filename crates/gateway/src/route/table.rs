//! All routes, and which of them a request belongs to.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use spile_policy::HostPattern;

use super::settings::Route;
use super::state::Served;
use crate::route::Target;
use crate::upstream::Upstream;

/// Finds the route of a request.
#[derive(Debug)]
pub(crate) struct Table {
    routes: Box<[Arc<Served>]>,
    /// Each host of each route, the most specific first.
    host_routes: Box<[HostRoute]>,
}

/// One host of one route.
#[derive(Debug)]
struct HostRoute {
    /// `None` for a route that answers for all hosts.
    host: Option<HostPattern>,
    route: usize,
}

impl Table {
    /// These routes. What is known of those that were served `before` stays known.
    pub(crate) fn new(routes: Vec<Route>, before: Option<&Self>) -> Self {
        let mut host_routes: Vec<HostRoute> = routes.iter().enumerate().flat_map(host_routes_of).collect();
        // The sort is stable: of two routes that are alike, the one that was written first is served.
        host_routes.sort_by_key(|entry| {
            let host = entry.host.as_ref().map(HostPattern::specificity);
            Reverse((host, routes[entry.route].path.specificity()))
        });
        let known = |route: &Route| before?.routes.iter().find(|served| served.route.is_same(route));
        let serve = |route| {
            let known = known(&route).map(|served| &**served);
            Arc::new(Served::new(route, known))
        };
        Self { routes: routes.into_iter().map(serve).collect(), host_routes: host_routes.into() }
    }

    pub(crate) fn routes(&self) -> &[Arc<Served>] {
        &self.routes
    }

    /// The names that upstreams are called by.
    pub(crate) fn names(&self) -> HashSet<Box<str>> {
        self.upstreams().filter_map(Upstream::name).map(Into::into).collect()
    }

    /// Reads certificates and keys for upstreams again if their files have changed.
    pub(crate) fn refresh_files(&self) {
        let mut refreshed = HashSet::new();
        for tls in self.upstreams().filter_map(|upstream| upstream.tls.as_ref()) {
            // Many upstreams may share one.
            if refreshed.insert(tls.identity()) {
                tls.refresh();
            }
        }
    }

    /// The index of the route that the target belongs to: the one with the most specific host that matches, and among
    /// these the one with the most specific path.
    pub(crate) fn find(&self, target: &Target) -> Option<usize> {
        let is_for = |entry: &&HostRoute| {
            entry.host.as_ref().is_none_or(|host| host.matches(&target.host))
                && self.routes[entry.route].route.path.matches(target.path.matched())
        };
        self.host_routes.iter().find(is_for).map(|entry| entry.route)
    }

    fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.routes.iter().flat_map(|served| served.pool.endpoints()).map(|endpoint| &endpoint.upstream)
    }
}

fn host_routes_of((route, settings): (usize, &Route)) -> Vec<HostRoute> {
    match &settings.hosts[..] {
        [] => vec![HostRoute { host: None, route }],
        hosts => hosts.iter().cloned().map(|host| HostRoute { host: Some(host), route }).collect(),
    }
}
