//! One process: a limiter, its plans, its clocks, and what its callers hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Clock, FailurePolicy, InMemoryPlans, Micros, ReservationId, SpendTime};
use spile_limiter::{Permit, RateLimiter};
use spile_policy::Chain;
use spile_redis::RedisStore;
use spile_runtime::Runtime;

use super::report::{Owed, Reports};
use crate::scenario::{FleetSpec, PlanSpec, Policy};
use crate::scheduler::driver::InstanceDriver;
use crate::scheduler::{Scheduler, US};

/// A process of the fleet. Its callers share it.
pub(crate) struct Instance {
    pub(crate) number: usize,
    pub(crate) limiter: RateLimiter<RedisStore>,
    pub(crate) plans: Arc<InMemoryPlans>,
    pub(crate) clock: Arc<InstanceClock>,
    pub(crate) runtime: Runtime,
    pub(crate) scheduler: Scheduler,
    pub(crate) reports: Reports,
    pub(crate) held: Mutex<Held>,
}

/// The permits and reservations that the callers of an instance hold.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) permits: Vec<(String, Permit)>,
    pub(crate) spent: Vec<SpentDecision>,
    pub(crate) reservations: Vec<HeldReservation>,
}

/// A decision that can be refunded.
#[derive(Clone)]
pub(crate) struct SpentDecision {
    pub(crate) number: u64,
    pub(crate) chain: Arc<Chain>,
    pub(crate) charges: Vec<Owed>,
    pub(crate) at: SpendTime,
    /// Set once it was refunded with an id: then only that id can refund it.
    pub(crate) named: bool,
}

/// A reservation, and the chain that it charged.
#[derive(Clone)]
pub(crate) struct HeldReservation {
    pub(crate) number: u64,
    pub(crate) id: ReservationId,
    pub(crate) chain: Arc<Chain>,
    pub(crate) charges: Vec<Owed>,
}

impl Instance {
    /// Starts a process.
    pub(crate) fn start(
        scheduler: &Scheduler,
        spec: &FleetSpec,
        plans: &[PlanSpec],
        versions: &[u8],
        reports: &Reports,
    ) -> Arc<Self> {
        let drift_ppm = if scheduler.0.lock().instances.len() % 2 == 1 { spec.drift_ppm } else { 0 };
        let number = scheduler.add_instance(drift_ppm);
        let clock = Arc::new(InstanceClock {
            scheduler: scheduler.clone(),
            starts_us: spec.starts * 1_000_000,
            stepped_us: AtomicI64::new(0),
        });
        let driver = InstanceDriver::new(scheduler.clone(), number, Arc::<InstanceClock>::clone(&clock));
        let runtime = Runtime::driven_by(driver);
        let urls: Vec<String> = (0..spec.nodes).map(|node| format!("node{node}:6379")).collect();
        let scheme = if spec.nodes > 1 { "redis-cluster" } else { "redis" };
        let timeout = Duration::from_millis(spec.timeout_ms);
        let store = RedisStore::builder(format!("{scheme}://{}", urls.join(",")))
            .timeout(timeout)
            .connections(usize::from(spec.connections))
            .runtime(runtime.clone())
            .build()
            .expect("a store of the simulation");
        let registry = plans.iter().zip(0_u8..).zip(versions);
        let registry = registry.map(|((plan, number), version)| plan.plan(number, *version));
        let registry = Arc::new(InMemoryPlans::new(registry));
        let limiter = RateLimiter::builder()
            .store(store)
            .registry(Arc::clone(&registry))
            .deadline(timeout + Duration::from_millis(10))
            .deny_cache(Duration::from_millis(spec.deny_cache_ms))
            .lease_share(f64::from(spec.lease_percent) / 100.0)
            .on_failure(spec.policy.into())
            .replicas(u32::from(spec.instances))
            .clock(Arc::clone(&clock))
            .runtime(runtime.clone())
            .build();
        let (scheduler, reports) = (scheduler.clone(), reports.clone());
        Arc::new(Self {
            number,
            limiter,
            plans: registry,
            clock,
            runtime,
            scheduler,
            reports,
            held: Mutex::default(),
        })
    }

    /// Starts a task of a caller.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.scheduler.spawn(self.number, false, Box::pin(task));
    }
}

impl From<Policy> for FailurePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::FailOpen => Self::Allow,
            Policy::FailClosed => Self::Deny,
            Policy::Local => Self::Local,
        }
    }
}

/// The clocks of a process: one that never steps, and the wall clock.
pub(crate) struct InstanceClock {
    scheduler: Scheduler,
    starts_us: u64,
    /// How far the wall clock has been stepped.
    stepped_us: AtomicI64,
}

impl InstanceClock {
    pub(crate) fn step(&self, us: i64) {
        self.stepped_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl Clock for InstanceClock {
    fn now(&self) -> Micros {
        Micros::new(self.starts_us + self.scheduler.now() / US)
    }

    fn wall(&self) -> Micros {
        Micros::new(self.now().get().saturating_add_signed(self.wall_ahead_us()))
    }

    fn wall_ahead_us(&self) -> i64 {
        self.stepped_us.load(Ordering::Relaxed)
    }
}
