//! A route while it is served: its settings, and what all workers know about its upstreams.

use std::sync::Arc;

use spile_tower::key;

use super::settings::Route;
use crate::forward::RetryBudget;
use crate::upstream::Pool;

/// A route and its state.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) route: Route,
    pub(crate) pool: Pool,
    pub(crate) retries: RetryBudget,
    /// What resolvers of per-route limits find.
    pub(crate) label: key::Route,
}

impl Served {
    pub(crate) fn new(route: Route) -> Self {
        let pool = Pool::new(route.upstreams.iter().cloned(), route.balance);
        let label = key::Route(Arc::from(&*route.name));
        Self { route, pool, retries: RetryBudget::new(), label }
    }
}
