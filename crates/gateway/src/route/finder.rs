//! Finds the route that a request goes to.

use std::cmp::Reverse;

use spile_policy::{HostPattern, PathPattern};

use super::settings::Route;

/// Finds the route of a request: the one with the most specific host, then the one with the most specific path.
///
/// The gateway uses it, and so does every part that has to know where the gateway would send a request.
///
/// ```
/// use spile_gateway::{Route, RouteFinder};
///
/// let routes = [Route::new("/", ["http://127.0.0.1:9000".parse()?])?, Route::new("/scores", [])?];
/// assert_eq!(RouteFinder::new(&routes).find("api.example", "/scores/1"), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RouteFinder {
    /// One entry for each host of each route, the most specific first.
    entries: Box<[HostRoute]>,
}

/// One host of one route.
#[derive(Debug)]
struct HostRoute {
    /// `None` for a route that matches all hosts.
    host: Option<HostPattern>,
    path: PathPattern,
    /// The index of the route.
    route: usize,
}

impl RouteFinder {
    /// Finds among these routes. Of two routes for the same requests the first one wins.
    pub fn new<'r>(routes: impl IntoIterator<Item = &'r Route>) -> Self {
        let mut entries: Vec<HostRoute> = routes.into_iter().enumerate().flat_map(entries_of).collect();
        // The sort is stable, so the first of equals stays the first.
        entries.sort_by_key(|entry| {
            Reverse((entry.host.as_ref().map(HostPattern::specificity), entry.path.specificity()))
        });
        Self { entries: entries.into() }
    }

    /// Whether there are no routes.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The index of the route for this host and this path. The host is in lower case and without a port, and the path
    /// is [clean](spile_policy::CleanPath).
    pub fn find(&self, host: &str, path: &str) -> Option<usize> {
        let is_for = |entry: &&HostRoute| {
            entry.host.as_ref().is_none_or(|own| own.matches(host)) && entry.path.matches(path)
        };
        self.entries.iter().find(is_for).map(|entry| entry.route)
    }
}

fn entries_of((route, settings): (usize, &Route)) -> Vec<HostRoute> {
    let entry = |host| HostRoute { host, path: settings.path.clone(), route };
    match &settings.hosts[..] {
        [] => vec![entry(None)],
        hosts => hosts.iter().cloned().map(Some).map(entry).collect(),
    }
}
