//! How a limiter is put together.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{Clock, FailurePolicy, InMemoryPlans, Plan, PlanRegistry, Store, SystemClock};
use spile_memory::MemoryStore;

use super::fallback::Fallback;
use super::{Inner, RateLimiter};
use crate::observer::Observer;

/// How a [`RateLimiter`] is put together. Only the store has no default.
#[must_use = "call build()"]
pub struct Builder<S> {
    store: S,
    plans: Arc<dyn PlanRegistry>,
    policy: FailurePolicy,
    fail_closed_retry_after: Duration,
    replicas: u32,
    max_local_keys: usize,
    deadline: Duration,
    clock: Arc<dyn Clock>,
    observer: Option<Box<dyn Observer>>,
}

impl Builder<()> {
    pub(crate) fn new() -> Self {
        Self {
            store: (),
            plans: Arc::new(InMemoryPlans::default()),
            policy: FailurePolicy::default(),
            fail_closed_retry_after: Duration::from_secs(1),
            replicas: 1,
            max_local_keys: 1_000_000,
            deadline: Duration::from_millis(50),
            clock: Arc::new(SystemClock::new()),
            observer: None,
        }
    }

    /// Keeps buckets in `store`.
    pub fn store<S: Store>(self, store: S) -> Builder<S> {
        Builder {
            store,
            plans: self.plans,
            policy: self.policy,
            fail_closed_retry_after: self.fail_closed_retry_after,
            replicas: self.replicas,
            max_local_keys: self.max_local_keys,
            deadline: self.deadline,
            clock: self.clock,
            observer: self.observer,
        }
    }
}

impl<S> Builder<S> {
    /// Knows these plans, and no others.
    pub fn plans(self, plans: impl IntoIterator<Item = Plan>) -> Self {
        self.registry(InMemoryPlans::new(plans))
    }

    /// Looks plans up in `registry`, which may change while the limiter runs.
    pub fn registry(mut self, registry: impl PlanRegistry + 'static) -> Self {
        self.plans = Arc::new(registry);
        self
    }

    /// Decides so where the store fails. The default lets requests pass, marked as degraded.
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Tells whoever is refused because the store failed to come back after this long. One second by default.
    pub const fn fail_closed_retry_after(mut self, wait: Duration) -> Self {
        self.fail_closed_retry_after = wait;
        self
    }

    /// Divides each limit by this many instances while the policy is `local`. One by default.
    pub const fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Holds at most this many buckets in the store behind `local`. A million by default.
    pub const fn max_local_keys(mut self, keys: usize) -> Self {
        self.max_local_keys = keys;
        self
    }

    /// Gives the store this long to answer. Fifty milliseconds by default.
    ///
    /// A store that answers at once, as the embedded one does, never starts a timer.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Tells the time of decisions made without the store by `clock`.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Tells `observer` of every decision.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }
}

impl<S: Store> Builder<S> {
    /// The limiter.
    pub fn build(self) -> RateLimiter<S> {
        let local = MemoryStore::builder().clock(Arc::clone(&self.clock)).max_keys(self.max_local_keys);
        let fallback = Fallback {
            policy: self.policy,
            retry_after: self.fail_closed_retry_after,
            replicas: self.replicas,
            clock: self.clock,
            local: local.build(),
        };
        RateLimiter::from(Inner {
            store: self.store,
            plans: self.plans,
            deadline: self.deadline,
            fallback,
            counts: self.observer.as_ref().and_then(|observer| observer.counts()),
            observer: self.observer,
        })
    }
}
