//! The routes of the moment, with one worker's connections to their upstreams.

use std::sync::Arc;

use foldhash::HashMap;

use crate::gateway::Setup;
use crate::route::Served;
use crate::upstream::{Lines, Upstream};

/// Where a worker's requests may go.
pub(crate) struct Roads {
    pub(crate) setup: Arc<Setup>,
    /// For each route, for each of its endpoints.
    lines: Box<[Box<[Arc<Lines>]>]>,
    by_upstream: HashMap<Upstream, Arc<Lines>>,
}

/// One route, and the connections to each of its endpoints, in their order.
#[derive(Clone, Copy)]
pub(crate) struct Way<'r> {
    pub(crate) served: &'r Served,
    pub(crate) lines: &'r [Arc<Lines>],
}

impl Roads {
    /// The roads of this setup. Connections to upstreams that were served `before` are kept.
    #[expect(clippy::mutable_key_type, reason = "upstreams are told apart by the names of files alone")]
    pub(crate) fn new(setup: Arc<Setup>, before: Option<&Self>) -> Self {
        let mut by_upstream: HashMap<Upstream, Arc<Lines>> = HashMap::default();
        let mut lines_to = |upstream: &Upstream| {
            let standing = by_upstream.get(upstream).or_else(|| before?.by_upstream.get(upstream)).cloned();
            let lines = standing.unwrap_or_default();
            by_upstream.entry(upstream.clone()).or_insert(lines).clone()
        };
        let mut of_route = |served: &Arc<Served>| {
            served.pool.endpoints().iter().map(|endpoint| lines_to(&endpoint.upstream)).collect()
        };
        let lines = setup.table.routes().iter().map(&mut of_route).collect();
        Self { setup, lines, by_upstream }
    }

    /// One route, and the connections to its endpoints.
    pub(crate) fn way(&self, route: usize) -> Way<'_> {
        Way { served: &self.setup.table.routes()[route], lines: &self.lines[route] }
    }

    /// Closes connections to upstreams that have had nothing to do for long, or lead where their name no longer does.
    pub(crate) fn sweep(&self) {
        self.by_upstream.values().for_each(|lines| lines.sweep());
    }
}
