//! The load: callers who ask, wait for the answer, and ask again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Clock, Decision, DecisionSource, Limit, Plan, SystemClock};
use spile_limiter::RateLimiter;
use spile_redis::RedisStore;
use spile_testkit::ledger::{Ledger, Recorded};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::witness::Witness;

/// Callers on each of the buckets that everybody wants, and callers with one of their own.
const HOT: usize = 6;
const WITNESSES: usize = 4;

/// Between an answer and the next question: enough load to saturate the hot bucket many times over, and not so much
/// that two cores are what is measured.
const PACE: Duration = Duration::from_millis(3);

/// The plan of the hot bucket.
pub(crate) const HOT_PLAN: &str = "hot";

/// The plan of a bucket that all instances want, and take tokens of in advance.
const LEASED_PLAN: &str = "leased";
/// The key of that bucket.
pub(crate) const LEASED_KEY: &str = "all instances";

pub(crate) type Limiter = RateLimiter<Recorded<RedisStore>>;

/// The bucket that everybody wants.
pub(crate) fn hot_limit() -> Limit {
    Limit::per_second(200).burst(50).build().expect("within bounds")
}

/// Every plan that the callers ask under.
pub(crate) fn plans() -> Vec<Plan> {
    let hot = Plan::new(HOT_PLAN, hot_limit()).expect("a plan");
    let lease = Duration::from_millis(100);
    let leased = Limit::per_second(500).burst(hot_limit().capacity()).lease(lease);
    let leased = Plan::new(LEASED_PLAN, leased).expect("a plan");
    [hot, leased].into_iter().chain((0..WITNESSES).map(Witness::plan)).collect()
}

/// Callers at work.
pub(crate) struct Callers {
    stop: Arc<AtomicBool>,
    complaints: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Callers {
    pub(crate) fn start(
        runtime: &Handle,
        instances: &[Limiter],
        ledger: &Ledger,
        state_may_be_lost: bool,
    ) -> Self {
        let (stop, complaints) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<String>>>::default());
        let caller = |instance: usize| Caller {
            instance,
            limiter: instances[instance].clone(),
            ledger: ledger.clone(),
            clock: SystemClock::new(),
            stop: Arc::clone(&stop),
            complaints: Arc::clone(&complaints),
        };
        let hot = (0..HOT).map(|_| runtime.spawn(caller(0).hammer("everybody", HOT_PLAN)));
        let lease = |index| runtime.spawn(caller(index % instances.len()).hammer(LEASED_KEY, LEASED_PLAN));
        let witness = |index| runtime.spawn(caller(0).testify(index, state_may_be_lost));
        let tasks = hot.chain((0..HOT).map(lease)).chain((0..WITNESSES).map(witness)).collect();
        Self { stop, complaints, tasks }
    }

    /// Lets every caller have its last answer, and returns what they complain of.
    pub(crate) async fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            if let Err(why) = task.await {
                self.complaints.lock().push(format!("a caller panicked: {why}"));
            }
        }
        std::mem::take(&mut *self.complaints.lock())
    }
}

struct Caller {
    instance: usize,
    limiter: Limiter,
    ledger: Ledger,
    clock: SystemClock,
    stop: Arc<AtomicBool>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Caller {
    async fn hammer(self, key: &'static str, plan: &'static str) {
        while !self.stop.load(Ordering::Relaxed) {
            let _ = self.ask(key, plan).await;
            tokio::time::sleep(PACE).await;
        }
    }

    async fn testify(self, index: usize, state_may_be_lost: bool) {
        let (key, plan) = (format!("witness:{index}"), Witness::plan_name(index));
        let mut witness = Witness::new(index, state_may_be_lost);
        while !self.stop.load(Ordering::Relaxed) {
            let decision = self.ask(&key, &plan).await;
            if let Err(complaint) = witness.sees(&decision) {
                self.complaints.lock().push(complaint);
            }
            tokio::time::sleep(PACE).await;
        }
    }

    async fn ask(&self, key: &str, plan: &str) -> Decision {
        let asked = self.clock.now();
        let decision = self.limiter.allow(key, [plan], 1).await.expect("a question that can be asked");
        let given = self.clock.now();
        // What instances admit alone, each admits from a bucket of its own.
        let own = format!("{key} at {}", self.instance);
        let name = if decision.source() == DecisionSource::Local { &own } else { key };
        self.ledger.decided(name, &decision, given, Duration::from_micros(given.since_us(asked)));
        decision
    }
}
