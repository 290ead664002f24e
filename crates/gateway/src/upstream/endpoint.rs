//! One upstream of a route, as all workers see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::address::Upstream;

/// An upstream and how it is doing.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) upstream: Upstream,
    outstanding: AtomicUsize,
}

/// A request that the endpoint has not finished with. Counts for as long as it is held.
#[derive(Debug)]
pub(crate) struct Outstanding(Arc<Endpoint>);

impl Endpoint {
    pub(crate) const fn new(upstream: Upstream) -> Self {
        Self { upstream, outstanding: AtomicUsize::new(0) }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Outstanding {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Outstanding(Arc::clone(self))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}
