//! The route that a request would take, for other crates.

use std::sync::Arc;

use spile_core::Micros;
use spile_policy::{CallerTenant, Policy};
use spile_tower::cost::Estimate;

use crate::auth::Caller;
use crate::refusal::GatewayRefusal;
use crate::route::RouteState;

/// The route that a request would take, found by [`Gateway::find_route`](crate::Gateway::find_route).
#[derive(Debug)]
pub struct FoundRoute {
    route: Arc<RouteState>,
    policy: Arc<Policy>,
    load_factor: f64,
}

impl FoundRoute {
    pub(crate) fn new(route: Arc<RouteState>, policy: Arc<Policy>, now: Micros) -> Self {
        let load_factor = route.load_factor(now);
        Self { route, policy, load_factor }
    }

    /// The name of the route.
    pub fn name(&self) -> &str {
        &self.route.settings.name
    }

    /// The policy by which the gateway limits the request.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The factor on the limits of its requests, from 0 to 1: below 1 while its upstreams are overloaded.
    pub const fn load_factor(&self) -> f64 {
        self.load_factor
    }

    /// Whether the cost of a request is known only when its upstream has answered.
    pub fn has_late_cost(&self) -> bool {
        self.route.settings.cost_from_response.is_some()
    }

    /// The charge that replaces the cost of each rule until the answer reports the cost.
    pub fn estimate(&self) -> Option<&Estimate> {
        self.route.settings.estimate.as_ref()
    }

    /// Why the route refuses this caller, regardless of limits. `None` if it does not.
    pub fn refusal(&self, tenant: Option<CallerTenant>, principal: Option<&str>) -> Option<&'static str> {
        let caller = Caller { tenant, principal: principal.map(str::to_owned), ..Caller::default() };
        match self.route.settings.authorize(&caller).err()? {
            GatewayRefusal::Unauthenticated(why) | GatewayRefusal::Forbidden(why) => Some(why),
            _ => None,
        }
    }
}
