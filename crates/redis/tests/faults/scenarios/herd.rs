//! Thousands wait when Redis heals.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use super::Listed;
use crate::callers::{HOT_PLAN, Limiter};
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[("21 herd when it heals", herd)];

const HERD: usize = 2_000;

/// Between an answer and a caller's next question.
const PACE: Duration = Duration::from_millis(500);

/// What the work of Redis is measured over.
const MEASURED: Duration = Duration::from_secs(1);

/// Times that it is measured before it fails.
const SECONDS: usize = 3;
/// How much more Redis may have to do in the second after it heals than in any other.
const AT_MOST: f64 = 1.2;

fn herd(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Allow).start(&server.url());
    let limiter = trial.limiter_beside();
    let herd: Vec<_> = (0..HERD).map(|number| trial.runtime.spawn(graze(limiter.clone(), number))).collect();
    wait::lasting(PACE);
    // The busiest of several: what one second takes differs by as much as the promise leaves.
    let steady = (0..SECONDS).map(|_| work_of(&server)).fold(0.0, f64::max);
    server.freeze();
    wait::lasting(MEASURED);
    trial.heal(|| server.thaw());
    let healed = work_of(&server);
    herd.iter().for_each(tokio::task::JoinHandle::abort);
    let findings = trial.finished().felt().conserved();
    let ratio = healed / steady;
    findings
        .that(ratio <= AT_MOST, || format!("Redis had {ratio:.2} times the work when it healed"))
        .row(name)
}

/// The CPU time that Redis takes from now on, over a while.
fn work_of(server: &RedisServer) -> f64 {
    let before = server.cpu_seconds();
    wait::lasting(MEASURED);
    server.cpu_seconds() - before
}

async fn graze(limiter: Limiter, number: usize) {
    let key = format!("herd:{number}");
    // Spread over the pace, or they would come as one at the start already.
    tokio::time::sleep(PACE.mul_f64(number as f64 / HERD as f64)).await;
    loop {
        let _ = limiter.allow(&key, [HOT_PLAN], 1).await;
        tokio::time::sleep(PACE).await;
    }
}
