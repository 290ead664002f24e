//! One instance: tasks that take permits, hold them for a while, and are cancelled or panic at random. What it does is written to
//! standard output, one line for each event: a permit is told after it was taken, and before it is released.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use spile_core::{FailurePolicy, Limit, Plan};
use spile_limiter::{Permit, RateLimiter};
use spile_redis::RedisStore;
use tokio::task::JoinHandle;

use crate::{HOLD_MS, KEYS, LIMIT, PERMITS};

/// The word that makes a process of this test a worker.
pub(crate) const ROLE: &str = "worker";

const TASKS: u64 = 8;

/// How many permits are worked under.
static WORKING: AtomicU64 = AtomicU64::new(0);

type Limiter = Arc<RateLimiter<RedisStore>>;

/// Takes permits until standard input is closed.
pub(crate) fn work(url: &str, seed: u64) {
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store =
            RedisStore::builder(url).timeout(Duration::from_millis(100)).build().expect("a sound URL");
        let hold = Duration::from_millis(HOLD_MS);
        let plan = Plan::new(LIMIT, Limit::concurrent(PERMITS.into()).hold(hold)).expect("a plan");
        let limiter = RateLimiter::builder().store(store).plans([plan]).on_failure(FailurePolicy::Deny);
        let limiter: Limiter = Arc::new(limiter.deadline(Duration::from_millis(100)).build());
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(take_permits(Arc::clone(&limiter), Rng::with_seed(seed * TASKS + task))))
            .collect();
        tokio::task::spawn_blocking(|| drop(std::io::read_to_string(std::io::stdin())))
            .await
            .expect("standard input is read to its end");
        for task in &tasks {
            task.abort();
        }
        // Work ends before its permits are released.
        while WORKING.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        limiter.release_permits().await;
    });
}

async fn take_permits(limiter: Limiter, mut random: Rng) {
    loop {
        let key = format!("user:{}", random.usize(..KEYS));
        let asked = limiter.acquire(&key, LIMIT);
        let permit = if random.u32(..10) == 0 {
            // The caller goes away, before or after the question is sent.
            let patience = Duration::from_micros(random.u64(..1_500));
            tokio::time::timeout(patience, asked).await.ok().and_then(Result::ok)
        } else {
            asked.await.ok()
        };
        match permit {
            Some(permit) => hold(HeldWork::new(permit, &key), &mut random).await,
            None => tokio::time::sleep(Duration::from_micros(random.u64(200..3_000))).await,
        }
    }
}

/// Works for a moment, seldom for longer than the hold time. Some of the work panics or is cancelled.
async fn hold(work: HeldWork, random: &mut Rng) {
    let time = match random.u32(..2_000) {
        0 => Duration::from_millis(HOLD_MS * 5 / 2),
        1..20 => Duration::from_millis(50),
        _ => Duration::from_micros(random.u64(..800)),
    };
    let panics = random.u32(..20) == 0;
    let working = tokio::spawn(async move {
        // A holder whose permit is lost stops.
        let _lost = tokio::time::timeout(time, work.permit.lost()).await;
        assert!(!panics, "some work panics");
    });
    let mut working = AbortOnDrop(working);
    if random.u32(..20) == 0 {
        tokio::time::sleep(time / 2).await;
        return;
    }
    let _ended = (&mut working.0).await;
}

/// Work that is cancelled when its waiting task is gone.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Work that holds a permit. Its end is told before the permit is released.
struct HeldWork {
    permit: Permit,
}

impl HeldWork {
    fn new(permit: Permit, key: &str) -> Self {
        WORKING.fetch_add(1, Ordering::AcqRel);
        tell(&format!("A {} {} {key}\n", std::process::id(), permit.id()));
        Self { permit }
    }
}

impl Drop for HeldWork {
    fn drop(&mut self) {
        let end = if self.permit.is_held() { 'R' } else { 'L' };
        tell(&format!("{end} {} {}\n", std::process::id(), self.permit.id()));
        WORKING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One write for each line, so that lines of several processes do not mix and are in the order in which things happened.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _gone = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
