//! One upstream of a route, as all workers see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::gauge;

use super::address::Upstream;
use super::health::Health;
use crate::overload::{Concurrency, FairQueue, Permit};
use crate::refusal::Refusal;
use crate::telemetry::QueueGauges;

/// An upstream and how it is doing.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) upstream: Upstream,
    pub(crate) health: Health,
    concurrency: Option<Concurrency>,
    outstanding: AtomicUsize,
    queue: Option<Arc<FairQueue>>,
}

/// A request that the endpoint has not finished with. Counts for as long as it is held.
#[derive(Debug)]
pub(crate) struct Outstanding {
    endpoint: Arc<Endpoint>,
    permit: Option<Permit>,
}

impl Endpoint {
    pub(crate) fn new(upstream: Upstream, route: &str, concurrency: Option<Concurrency>) -> Self {
        let labels = [("route", route.to_owned()), ("upstream", upstream.label())];
        let health = Health::new(gauge!("gateway_upstream_up", &labels), route, &upstream.label());
        let queue = concurrency.map(|settings| Arc::new(FairQueue::new(settings, QueueGauges::new(&labels))));
        Self { upstream, health, concurrency, outstanding: AtomicUsize::new(0), queue }
    }

    /// Whether it is this upstream, with as many requests at once.
    pub(crate) fn is(&self, upstream: &Upstream, concurrency: Option<Concurrency>) -> bool {
        self.upstream == *upstream && self.concurrency == concurrency
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// A place for one request of `caller`, once there is one.
    pub(crate) async fn enter(self: &Arc<Self>, caller: &str) -> Result<Outstanding, Refusal> {
        let permit = match &self.queue {
            None => None,
            Some(queue) => Some(queue.enter(caller).await.map_err(|_| Refusal::Busy)?),
        };
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Ok(Outstanding { endpoint: Arc::clone(self), permit })
    }
}

impl Outstanding {
    /// Whether the endpoint has a cap, so that it may have been waited for.
    pub(crate) const fn is_capped(&self) -> bool {
        self.permit.is_some()
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.endpoint.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}
