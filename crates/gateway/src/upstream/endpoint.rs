//! One upstream of a route.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::gauge;

use super::address::Upstream;
use super::health::UpstreamHealth;
use crate::gateway::metrics::QueueGauges;
use crate::limit::{FairQueue, RouteConcurrency, UpstreamPermit};

/// An upstream of a route: its health and the requests in flight, as all workers see them.
#[derive(Debug)]
pub(crate) struct UpstreamEndpoint {
    pub(crate) upstream: Upstream,
    pub(crate) health: UpstreamHealth,
    concurrency: Option<RouteConcurrency>,
    in_flight: AtomicUsize,
    queue: Option<Arc<FairQueue>>,
}

/// A request in flight at the endpoint. It is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    endpoint: Arc<UpstreamEndpoint>,
    _permit: Option<UpstreamPermit>,
}

impl UpstreamEndpoint {
    pub(crate) fn new(upstream: Upstream, route: &str, concurrency: Option<RouteConcurrency>) -> Self {
        let labels = [("route", route.to_owned()), ("upstream", upstream.label())];
        let health = UpstreamHealth::new(gauge!("gateway_upstream_up", &labels), route, &upstream.label());
        let queue = concurrency.map(|settings| Arc::new(FairQueue::new(settings, QueueGauges::new(&labels))));
        Self { upstream, health, concurrency, in_flight: AtomicUsize::new(0), queue }
    }

    /// Whether it is for this upstream, with the same cap.
    pub(crate) fn matches(&self, upstream: &Upstream, concurrency: Option<RouteConcurrency>) -> bool {
        self.upstream == *upstream && self.concurrency == concurrency
    }

    /// The name of the upstream in logs and metrics.
    pub(crate) fn label(&self) -> &str {
        self.health.upstream()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether as many requests are in flight as the cap allows.
    pub(crate) fn is_full(&self) -> bool {
        self.concurrency.is_some_and(|cap| self.in_flight() >= cap.per_upstream)
    }

    pub(crate) const fn queue(&self) -> Option<&Arc<FairQueue>> {
        self.queue.as_ref()
    }

    /// Counts a request in flight.
    pub(crate) fn start_request(self: &Arc<Self>, permit: Option<UpstreamPermit>) -> InFlightRequest {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightRequest { endpoint: Arc::clone(self), _permit: permit }
    }
}

impl InFlightRequest {
    pub(crate) fn endpoint(&self) -> &UpstreamEndpoint {
        &self.endpoint
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
