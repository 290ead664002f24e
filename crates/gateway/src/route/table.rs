//! All routes, the most specific first.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use spile_policy::HostPattern;

use super::served::Served;
use super::settings::Route;
use crate::target::Target;
use crate::upstream::Upstream;

/// Finds the route of a request.
#[derive(Debug)]
pub(crate) struct Table(Box<[Arc<Served>]>);

impl Table {
    /// These routes. What is known of those that were served `before` stays known.
    pub(crate) fn new(mut routes: Vec<Route>, before: Option<&Self>) -> Self {
        // The sort is stable: of two routes that are alike, the one that was written first is served.
        routes.sort_by_key(|route| Reverse((best_host(route), route.path.specificity())));
        let known = |route: &Route| before?.0.iter().find(|served| served.route.is_same(route));
        let serve = |route| {
            let known = known(&route).map(|served| &**served);
            Arc::new(Served::new(route, known))
        };
        Self(routes.into_iter().map(serve).collect())
    }

    pub(crate) fn routes(&self) -> &[Arc<Served>] {
        &self.0
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

    /// The index of the route that the target belongs to.
    pub(crate) fn find(&self, target: &Target) -> Option<usize> {
        self.0.iter().position(|served| serves(&served.route, target))
    }

    fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.0.iter().flat_map(|served| served.pool.endpoints()).map(|endpoint| &endpoint.upstream)
    }
}

fn best_host(route: &Route) -> (u8, usize) {
    route.hosts.iter().map(HostPattern::specificity).max().unwrap_or_default()
}

fn serves(route: &Route, target: &Target) -> bool {
    let host = route.hosts.is_empty() || route.hosts.iter().any(|host| host.matches(&target.host));
    host && route.path.matches(target.path.matched())
}
