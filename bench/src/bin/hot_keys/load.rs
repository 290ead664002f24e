//! Callers that ask several instances, and what that cost Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spile_bench::process_cpu_ns;
use spile_limiter::RateLimiter;
use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;

/// Which keys are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    One,
    /// So many, one after the other.
    Even(usize),
    /// So many, the first most often.
    Zipf {
        keys: usize,
        exponent: f64,
    },
}

/// Who asks, how often, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Callers of each instance.
    pub(crate) callers: usize,
    /// Questions a second to each instance. `None` for as many as there can be.
    pub(crate) per_second: Option<u64>,
    pub(crate) keys: Keys,
    pub(crate) time: Duration,
}

/// What a load cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) decisions: f64,
    /// Tokens that the first key was given.
    pub(crate) admitted_first: f64,
    /// Seconds.
    pub(crate) elapsed: f64,
    /// Seconds of all threads of this process.
    pub(crate) own_cpu: f64,
    /// Seconds.
    pub(crate) redis_cpu: f64,
    /// Commands that Redis was sent.
    pub(crate) redis_calls: f64,
}

impl Cost {
    pub(crate) fn rate(&self) -> f64 {
        self.decisions / self.elapsed
    }
}

/// What all callers count together.
#[derive(Default)]
struct Counts {
    decisions: AtomicU64,
    admitted_first: AtomicU64,
}

impl Load {
    /// Runs the load. The first key is asked for by all callers.
    pub(crate) async fn run(self, server: &RedisServer, instances: &[RateLimiter<RedisStore>]) -> Cost {
        let names: Arc<Vec<String>> =
            Arc::new((0..self.keys.count()).map(|key| format!("user:{key}")).collect());
        let picks = Arc::new(self.keys.picks());
        for instance in instances {
            // The first decision waits for the connection.
            let _ = instance.allow("first", ["hot"], 1).await.expect("a decision");
        }
        let counts = Arc::new(Counts::default());
        let (cpu, calls) = (server.cpu_seconds(), commands(server));
        let (own_cpu, began) = (process_cpu_ns(), Instant::now());
        let callers: Vec<_> = instances
            .iter()
            .flat_map(|instance| (0..self.callers).map(move |caller| (instance.clone(), caller)))
            .map(|(instance, caller)| {
                let (names, picks, counts) = (Arc::clone(&names), Arc::clone(&picks), Arc::clone(&counts));
                tokio::spawn(self.ask(instance, caller, names, picks, counts, began))
            })
            .collect();
        for caller in callers {
            caller.await.expect("no caller panics");
        }
        let elapsed = began.elapsed().as_secs_f64();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Cost {
            decisions: count(&counts.decisions),
            admitted_first: count(&counts.admitted_first),
            elapsed,
            own_cpu: (process_cpu_ns() - own_cpu) / 1e9,
            redis_cpu: server.cpu_seconds() - cpu,
            redis_calls: commands(server) - calls,
        }
    }

    async fn ask(
        self,
        instance: RateLimiter<RedisStore>,
        caller: usize,
        names: Arc<Vec<String>>,
        picks: Arc<Vec<u32>>,
        counts: Arc<Counts>,
        began: Instant,
    ) {
        let (mut decisions, mut admitted) = (0_u64, 0_u64);
        let mut turn = caller * 7_919;
        while began.elapsed() < self.time {
            // As many as are due by now. At full speed, a hundred, so that the clock is rarely read.
            let due = self.per_second.map_or(decisions + 100, |rate| {
                (began.elapsed().as_secs_f64() * rate as f64 / self.callers as f64) as u64
            });
            while decisions < due {
                let key = picks[turn % picks.len()] as usize;
                turn += 1;
                let decision = instance.allow(&names[key], ["hot"], 1).await.expect("a decision");
                assert!(!decision.degraded(), "Redis did not answer in time");
                decisions += 1;
                admitted += u64::from(decision.allowed() && key == 0);
            }
            match self.per_second {
                Some(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                None => tokio::task::yield_now().await,
            }
        }
        counts.decisions.fetch_add(decisions, Ordering::Relaxed);
        counts.admitted_first.fetch_add(admitted, Ordering::Relaxed);
    }
}

/// Commands from outside: those that scripts run are not counted.
fn commands(server: &RedisServer) -> f64 {
    let stats = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
    let calls = stats.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or_default()
}

impl Keys {
    const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Even(keys) | Self::Zipf { keys, .. } => keys,
        }
    }

    /// A long list of keys in the order in which they are asked for.
    fn picks(self) -> Vec<u32> {
        match self {
            Self::One => vec![0],
            Self::Even(keys) => (0..u32::try_from(keys).expect("few keys")).collect(),
            Self::Zipf { keys, exponent } => {
                let mut sum = 0.0;
                let sums: Vec<f64> = (1..=keys)
                    .map(|rank| {
                        sum += (rank as f64).powf(-exponent);
                        sum
                    })
                    .collect();
                // The fractions of multiples of the golden ratio are spread evenly, and are the same in each run.
                let spread = |index: u32| (f64::from(index) * 0.618_033_988_749_895).fract() * sum;
                let rank = |index| {
                    u32::try_from(sums.partition_point(|below| *below < spread(index))).expect("few keys")
                };
                (0..1_000_003).map(rank).collect()
            }
        }
    }
}
