//! A route while it is served: its settings, and what all workers know about its upstreams.

use std::sync::Arc;
use std::time::Duration;

use spile_core::Micros;

use super::rewrite::Rewrite;
use super::settings::Route;
use crate::forward::RetryBudget;
use crate::gateway::metrics::{RouteTelemetry, adaptive_factor};
use crate::limit::Aimd;
use crate::refusal::Refusal;
use crate::upstream::Pool;

/// A route and its state.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) route: Route,
    pub(crate) pool: Pool,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) retries: Arc<RetryBudget>,
    pub(crate) telemetry: RouteTelemetry,
    adaptive: Option<Arc<Aimd>>,
}

impl Served {
    /// The route at work. Where it was served `before`, in this setting or another, what was learnt then still holds.
    pub(crate) fn new(route: Route, before: Option<&Self>) -> Self {
        let pool = Pool::new(&route, before.map(|before| &before.pool));
        let aimd = |settings| {
            let standing = before.and_then(|before| before.adaptive.clone());
            let standing = standing.filter(|aimd| aimd.follows(&settings));
            standing.unwrap_or_else(|| Arc::new(Aimd::new(settings, adaptive_factor(&route.name))))
        };
        let adaptive = route.adaptive.map(aimd);
        let telemetry = RouteTelemetry::new(&route.name);
        let retries = before.map(|before| Arc::clone(&before.retries)).unwrap_or_default();
        Self { rewrite: route.rewrite(), route, pool, retries, telemetry, adaptive }
    }

    /// What the route's limits are multiplied by at the moment.
    pub(crate) fn factor(&self, now: Micros) -> f64 {
        self.adaptive.as_ref().map_or(1.0, |adaptive| adaptive.factor(now))
    }

    /// An upstream answered so after so long, or failed to. What was spent in our queue, or waiting for the client, is not
    /// part of `took`.
    pub(crate) fn observe(&self, now: Micros, took: Duration, answer: Result<http::StatusCode, &Refusal>) {
        let of_upstream = match answer {
            Ok(_) => None,
            Err(Refusal::Unreachable) => Some(&self.telemetry.unreachable),
            Err(Refusal::TimedOut) => Some(&self.telemetry.timed_out),
            Err(Refusal::BadAnswer) => Some(&self.telemetry.bad_answer),
            // The rest is our own doing or the client's, and says nothing about the upstream.
            Err(Refusal::Busy) => return self.telemetry.busy.increment(1),
            Err(Refusal::Local) => return self.telemetry.local.increment(1),
            Err(_) => return,
        };
        if let Some(failures) = of_upstream {
            failures.increment(1);
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.observe(now, took, answer.map_or(true, |status| status.is_server_error()));
        }
    }

    /// A client left while an upstream had been silent for this long, which counts against the upstream.
    pub(crate) fn abandoned(&self, now: Micros, silence: Duration) {
        self.telemetry.abandoned.increment(1);
        // What would have been in time for all that is known is not observed: clients could cut the limits by leaving.
        if let Some(adaptive) = self.adaptive.as_ref().filter(|adaptive| silence > adaptive.target_latency())
        {
            adaptive.observe(now, silence, false);
        }
    }
}
