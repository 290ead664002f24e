//! A limiter under load while something breaks.

use std::cell::Cell;
use std::time::Duration;

use spile_core::{Clock, FailurePolicy, Micros, SystemClock};
use spile_limiter::{RateLimiter, RateLimiterBuilder};
use spile_redis::RedisStore;
use spile_testkit::ledger::{Ledger, Recorded};
use spile_testkit::wait;
use tokio::runtime::Runtime;

use crate::callers::{self, Callers, Limiter};
use crate::counted::Counted;
use crate::findings::Findings;
use crate::stall::StallWatch;

/// What the limiter gives a decision, as it ships.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// How many instances share the bucket with a lease. All other callers ask the first.
const INSTANCES: usize = 3;

/// So many decisions of the store in a row are taken for normal service.
const CALM: usize = 150;

/// How long callers go on after a fault is healed, for what it left behind to show.
const AFTERMATH: Duration = Duration::from_millis(400);

/// How a trial is to be.
pub(crate) struct Setup {
    policy: FailurePolicy,
    state_may_be_lost: bool,
    down_at_start: bool,
}

impl Setup {
    /// Where the store fails, decides by `policy`.
    pub(crate) const fn policy(policy: FailurePolicy) -> Self {
        Self { policy, state_may_be_lost: false, down_at_start: false }
    }

    /// The fault may cost Redis what it holds.
    pub(crate) const fn state_may_be_lost(mut self) -> Self {
        self.state_may_be_lost = true;
        self
    }

    /// Nothing answers when the callers begin.
    pub(crate) const fn down_at_start(mut self) -> Self {
        self.down_at_start = true;
        self
    }

    /// Starts the callers against the store at `url`, and returns once they are served.
    pub(crate) fn start(self, url: &str) -> Trial {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let ledger = Ledger::default();
        let counted = Counted::default();
        let instance = || {
            let store = Recorded::new(runtime.block_on(async { store(url) }), ledger.clone());
            limiter(store, self.policy).observer(counted.clone()).build()
        };
        let instances: [Limiter; INSTANCES] = std::array::from_fn(|_| instance());
        let callers = Callers::start(runtime.handle(), &instances, &ledger, self.state_may_be_lost);
        let [limiter, ..] = instances;
        let (stalls, clock, healed) = (StallWatch::start(), SystemClock::new(), Cell::new(None));
        let policy = self.policy;
        let trial = Trial { runtime, limiter, ledger, counted, callers, policy, stalls, clock, healed };
        if !self.down_at_start {
            trial.wait_for_calm();
        }
        trial
    }
}

/// A limiter under load.
pub(crate) struct Trial {
    pub(crate) runtime: Runtime,
    pub(crate) limiter: Limiter,
    pub(crate) ledger: Ledger,
    counted: Counted,
    callers: Callers,
    policy: FailurePolicy,
    stalls: StallWatch,
    clock: SystemClock,
    /// When the last fault ended.
    healed: Cell<Option<Micros>>,
}

impl Trial {
    /// A limiter on the same store for callers of the scenario's own, whose decisions are in nobody's ledger. What the
    /// store admits to them is.
    pub(crate) fn limiter_beside(&self) -> Limiter {
        limiter(self.limiter.store().clone(), self.policy).build()
    }

    /// Waits until the store has served for a while without the policy's help, and returns how long that took.
    pub(crate) fn wait_for_calm(&self) -> Duration {
        wait::until_true("the store to serve", || self.ledger.calm() >= CALM)
    }

    /// Ends the fault. Recovery is measured from the moment at which `end` returns, whatever the scenario does then.
    pub(crate) fn heal<T>(&self, end: impl FnOnce() -> T) -> T {
        let ended = end();
        self.healed.set(Some(self.clock.now()));
        ended
    }

    /// Waits until the store serves as if nothing had been, stops the callers, and says what was found.
    pub(crate) fn finished(self) -> Findings {
        wait::lasting(AFTERMATH);
        self.wait_for_calm();
        let recovery = self.healed.get().map(|healed| {
            let last = self.ledger.last_by_policy();
            Duration::from_micros(last.map_or(0, |last| last.since_us(healed)))
        });
        self.judged(recovery)
    }

    fn judged(self, recovery: Option<Duration>) -> Findings {
        let Self { runtime, limiter, ledger, counted, callers, policy, stalls, .. } = self;
        let mut complaints = runtime.block_on(callers.finish());
        complaints.extend(counted.complaint(&ledger));
        let stalls = stalls.seen();
        drop(limiter);
        runtime.shutdown_timeout(Duration::from_secs(1));
        Findings::new(ledger, policy, recovery, &stalls, complaints)
    }
}

fn limiter(store: Recorded<RedisStore>, policy: FailurePolicy) -> RateLimiterBuilder<Recorded<RedisStore>> {
    RateLimiter::builder().store(store).plans(callers::plans()).on_failure(policy).deadline(DEADLINE)
}

/// The store as it ships.
pub(crate) fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).timeout(DEADLINE).build().expect("a store URL")
}
