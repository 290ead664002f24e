//! All routes, and which of them serves a request.

use std::collections::HashSet;
use std::sync::Arc;

use spile_policy::CleanPath;

use super::finder::RouteFinder;
use super::settings::Route;
use super::state::RouteState;
use crate::route::RequestTarget;
use crate::upstream::Upstream;

/// The routes in force, and the state of their upstreams.
#[derive(Debug)]
pub(crate) struct RouteTable {
    routes: Box<[Arc<RouteState>]>,
    finder: RouteFinder,
}

impl RouteTable {
    /// A table of these routes. Routes that were served `before` keep the state of their upstreams.
    pub(crate) fn new(routes: Vec<Route>, before: Option<&Self>) -> Self {
        let finder = RouteFinder::new(&routes);
        let known = |route: &Route| before?.routes.iter().find(|served| served.settings.is_same(route));
        let serve = |route| {
            let known = known(&route).map(|served| &**served);
            Arc::new(RouteState::new(route, known))
        };
        Self { routes: routes.into_iter().map(serve).collect(), finder }
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

    /// The index of the route for the target.
    pub(crate) fn find(&self, target: &RequestTarget) -> Option<usize> {
        self.finder.find(&target.host, target.path.matched())
    }

    /// The route for a request for this host and this path.
    pub(crate) fn route_for(&self, host: &str, path: &CleanPath) -> Option<&Arc<RouteState>> {
        self.finder.find(host, path.matched()).map(|index| &self.routes[index])
    }

    fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.routes.iter().flat_map(|served| served.balancer.endpoints()).map(|endpoint| &endpoint.upstream)
    }
}
