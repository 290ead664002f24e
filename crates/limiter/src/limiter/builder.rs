//! The builder of a limiter.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Clock, FailurePolicy, InMemoryPlans, Plan, PlanRegistry, Store, SystemClock};
use spile_memory::MemoryStore;
use spile_runtime::Runtime;

use super::RateLimiter;
use super::background::start_work;
use super::fallback::Fallback;
use super::inner::LimiterInner;
use crate::deny_cache::DenyCache;
use crate::lease::Leases;
use crate::observer::Observer;
use crate::permit::PermitKeeper;

/// The timeout of a store that reports none.
const USUAL_TIMEOUT: Duration = Duration::from_millis(50);
/// How much longer than the store's timeout a limiter waits, so that the store can report why it failed.
const GRACE: Duration = Duration::from_millis(10);

/// Builds a [`RateLimiter`]. Everything but the store has a default.
#[must_use = "call build()"]
pub struct RateLimiterBuilder<S> {
    store: S,
    settings: LimiterSettings,
}

/// Everything but the store.
struct LimiterSettings {
    plans: Arc<dyn PlanRegistry>,
    policy: FailurePolicy,
    fail_closed_retry_after: Duration,
    replicas: u32,
    max_local_keys: usize,
    deadline: Option<Duration>,
    deny_cache: Duration,
    lease_share: f64,
    clock: Arc<dyn Clock>,
    observer: Option<Box<dyn Observer>>,
    runtime: Runtime,
}

impl RateLimiterBuilder<()> {
    pub(crate) fn new() -> Self {
        let settings = LimiterSettings {
            plans: Arc::new(InMemoryPlans::default()),
            policy: FailurePolicy::default(),
            fail_closed_retry_after: Duration::from_secs(1),
            replicas: 1,
            max_local_keys: 1_000_000,
            deadline: None,
            deny_cache: Duration::from_millis(100),
            lease_share: 0.1,
            clock: Arc::new(SystemClock::new()),
            observer: None,
            runtime: Runtime::tokio(),
        };
        Self { store: (), settings }
    }

    /// Keeps buckets in `store`.
    pub fn store<S: Store>(self, store: S) -> RateLimiterBuilder<S> {
        RateLimiterBuilder { store, settings: self.settings }
    }
}

impl<S> RateLimiterBuilder<S> {
    /// The plans. There are no others.
    pub fn plans(self, plans: impl IntoIterator<Item = Plan>) -> Self {
        self.registry(InMemoryPlans::new(plans))
    }

    /// Looks plans up in `registry`, which may change while the limiter runs.
    pub fn registry(mut self, registry: impl PlanRegistry + 'static) -> Self {
        self.settings.plans = Arc::new(registry);
        self
    }

    /// Sets the policy if the store fails. By default requests pass, marked as degraded.
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets the wait that is reported to callers who are refused because the store failed. One second by default.
    pub const fn fail_closed_retry_after(mut self, wait: Duration) -> Self {
        self.settings.fail_closed_retry_after = wait;
        self
    }

    /// Divides each limit by this many instances while the policy is `local`. One by default.
    pub const fn replicas(mut self, replicas: u32) -> Self {
        self.settings.replicas = replicas;
        self
    }

    /// The most buckets that the embedded store behind the policy `local` holds. A million by default.
    pub const fn max_local_keys(mut self, keys: usize) -> Self {
        self.settings.max_local_keys = keys;
        self
    }

    /// Gives the store this long to answer. By default 10 ms more than its own [timeout](Store::timeout), or 60 ms if it has none:
    /// a store that cuts a call off itself knows whether it has run.
    ///
    /// A store that answers without waiting, as the embedded one does, never starts a timer.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = Some(deadline);
        self
    }

    /// Answers by a denial of the store for this long, as long as the bucket cannot have filled enough meanwhile. A hundred
    /// milliseconds by default; with zero, the store is always asked.
    ///
    /// A refund or a reset through this limiter is seen at once, one by another instance within this time. A store that
    /// answers without waiting, as the embedded one does, is always asked.
    pub const fn deny_cache(mut self, interval: Duration) -> Self {
        self.settings.deny_cache = interval;
        self
    }

    /// The largest part of what a bucket has left that an instance may hold as a [lease](spile_core::RateBuilder::lease): a
    /// tenth by default. Above a half, instances take turns at starving each other.
    ///
    /// # Panics
    /// If it is not above 0 and at most 1.
    pub fn lease_share(mut self, share: f64) -> Self {
        assert!(share > 0.0 && share <= 1.0, "a lease share of {share} is outside 0 to 1");
        self.settings.lease_share = share;
        self
    }

    /// The clock for decisions that are made without the store.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// The runtime for deadlines, pauses, tasks and random numbers. Tokio by default.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.settings.runtime = runtime;
        self
    }

    /// Calls `observer` with every decision.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.settings.observer = Some(Box::new(observer));
        self
    }
}

impl<S: Store + 'static> RateLimiterBuilder<S> {
    /// The limiter.
    pub fn build(self) -> RateLimiter<S> {
        let Self { store, settings } = self;
        let (clock, runtime) = (settings.clock, settings.runtime);
        let local = MemoryStore::builder().clock(Arc::clone(&clock)).max_keys(settings.max_local_keys);
        let local = match runtime.table_seed() {
            Some(seed) => local.build_seeded(seed),
            None => local.build(),
        };
        let fallback = Fallback {
            policy: settings.policy,
            retry_after: settings.fail_closed_retry_after,
            replicas: settings.replicas,
            clock,
            local,
        };
        let is_remote = store.is_shared();
        let deadline = settings.deadline.unwrap_or_else(|| store.timeout().unwrap_or(USUAL_TIMEOUT) + GRACE);
        let inner = LimiterInner {
            deny_cache: DenyCache::new(settings.deny_cache, &runtime).filter(|_| is_remote),
            leases: is_remote.then(|| Leases::new(settings.lease_share, deadline, &runtime)),
            start_work,
            renewals: Mutex::default(),
            permits: PermitKeeper::default(),
            store,
            runtime,
            plans: settings.plans,
            deadline,
            fallback,
            counts: settings.observer.as_ref().and_then(|observer| observer.counts()),
            observer: settings.observer,
        };
        RateLimiter { inner: Arc::new(inner) }
    }
}
