//! One upstream of a route, as all workers see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::gauge;

use super::address::Upstream;
use super::health::Health;
use crate::gateway::metrics::QueueGauges;
use crate::limit::{Concurrency, FairQueue, Permit};

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
    _permit: Option<Permit>,
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

    /// Whether it has as many requests under way as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.concurrency.is_some_and(|cap| self.outstanding() >= cap.per_upstream)
    }

    pub(crate) const fn queue(&self) -> Option<&Arc<FairQueue>> {
        self.queue.as_ref()
    }

    /// Counts a request that has been let in.
    pub(crate) fn occupy(self: &Arc<Self>, permit: Option<Permit>) -> Outstanding {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Outstanding { endpoint: Arc::clone(self), _permit: permit }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.endpoint.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}
