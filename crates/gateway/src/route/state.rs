//! A route while it is served.

use std::sync::Arc;
use std::time::Duration;

use spile_core::Micros;

use super::rewrite::PathRewrite;
use super::settings::Route;
use crate::forward::RetryBudget;
use crate::gateway::metrics::{RouteMetrics, adaptive_factor};
use crate::limit::{AdaptiveLimit, AnswerCosts};
use crate::refusal::GatewayRefusal;
use crate::upstream::LoadBalancer;

/// A route and the state of its upstreams, which all workers share. Lives until the next reload, which takes over that state.
#[derive(Debug)]
pub(crate) struct RouteState {
    pub(crate) settings: Route,
    pub(crate) balancer: LoadBalancer,
    pub(crate) rewrite: Option<PathRewrite>,
    pub(crate) retries: Arc<RetryBudget>,
    pub(crate) metrics: RouteMetrics,
    adaptive: Option<Arc<AdaptiveLimit>>,
    /// `None` if responses do not report their cost.
    pub(crate) answer_costs: Option<Arc<AnswerCosts>>,
}

impl RouteState {
    /// The state of a route. If the route was served `before`, maybe with other settings, the state of its upstreams stays.
    pub(crate) fn new(route: Route, before: Option<&Self>) -> Self {
        let balancer = LoadBalancer::new(&route, before.map(|before| &before.balancer));
        let adaptive = |settings| {
            let existing = before.and_then(|before| before.adaptive.clone());
            let existing = existing.filter(|adaptive| adaptive.has_settings(&settings));
            existing.unwrap_or_else(|| Arc::new(AdaptiveLimit::new(settings, adaptive_factor(&route.name))))
        };
        let adaptive = route.adaptive.map(adaptive);
        let metrics = RouteMetrics::new(&route.name);
        let retries = before.map(|before| Arc::clone(&before.retries)).unwrap_or_default();
        let costs = AnswerCosts::of(&route).map(Arc::new);
        Self {
            rewrite: route.rewrite(),
            settings: route,
            balancer,
            retries,
            metrics,
            adaptive,
            answer_costs: costs,
        }
    }

    /// The factor on the route's limits at the moment.
    pub(crate) fn load_factor(&self, now: Micros) -> f64 {
        self.adaptive.as_ref().map_or(1.0, |adaptive| adaptive.factor(now))
    }

    /// Records the result of a request. `took` is the time without queueing and without waiting for the client.
    pub(crate) fn observe(
        &self,
        now: Micros,
        took: Duration,
        answer: Result<http::StatusCode, &GatewayRefusal>,
    ) {
        let of_upstream = match answer {
            Ok(_) => None,
            Err(GatewayRefusal::Unreachable) => Some(&self.metrics.unreachable),
            Err(GatewayRefusal::TimedOut) => Some(&self.metrics.timed_out),
            Err(GatewayRefusal::BadAnswer) => Some(&self.metrics.bad_answer),
            // The other refusals are caused by the gateway or the client and say nothing about the upstream.
            Err(GatewayRefusal::Busy) => return self.metrics.busy.increment(1),
            Err(GatewayRefusal::NoLocalResources) => return self.metrics.local.increment(1),
            Err(_) => return,
        };
        if let Some(failures) = of_upstream {
            failures.increment(1);
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.observe(now, took, answer.map_or(true, |status| status.is_server_error()));
        }
    }

    /// Records that a client disconnected after the upstream had been silent for this long.
    pub(crate) fn record_abandoned(&self, now: Micros, silence: Duration) {
        self.metrics.abandoned.increment(1);
        // A shorter silence is not counted, or clients could cut the limits of others by disconnecting.
        if let Some(adaptive) = self.adaptive.as_ref().filter(|adaptive| silence > adaptive.target_latency())
        {
            adaptive.observe(now, silence, false);
        }
    }
}
