//! A route while it is served: its settings, and what all workers know about its upstreams.

use std::sync::Arc;
use std::time::Duration;

use spile_core::Micros;

use super::rewrite::Rewrite;
use super::settings::Route;
use crate::forward::RetryBudget;
use crate::overload::Aimd;
use crate::refusal::Refusal;
use crate::telemetry::{RouteTelemetry, adaptive_factor};
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

    /// An upstream answered so after so long, or failed to.
    pub(crate) fn observe(&self, now: Micros, took: Duration, answer: Result<http::StatusCode, &Refusal>) {
        match answer {
            Err(Refusal::Unreachable) => self.telemetry.unreachable.increment(1),
            Err(Refusal::TimedOut) => self.telemetry.timed_out.increment(1),
            Err(Refusal::BadAnswer) => self.telemetry.bad_answer.increment(1),
            Err(Refusal::Busy) => self.telemetry.busy.increment(1),
            // Whatever else goes wrong is the client's doing, and says nothing about the upstream.
            Err(_) => return,
            Ok(_) => {}
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.observe(now, took, answer.map_or(true, |status| status.is_server_error()));
        }
    }
}
