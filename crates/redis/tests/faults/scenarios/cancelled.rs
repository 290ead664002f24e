//! Callers give up in the middle.

use spile_core::FailurePolicy;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use super::Listed;
use crate::callers::{HOT_PLAN, Limiter};
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[("22 half the callers give up", cancelled)];

const CALLERS: u64 = 6_000;
const BATCH: u64 = 100;
/// How many turns of the scheduler those wait who leave. Many leave at once, so that enough do on a fast machine, too.
const PATIENCE: [u64; 8] = [0, 0, 1, 2, 5, 10, 20, 40];

/// Their places come back, and those who stay are served as if nobody had left.
fn cancelled(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    let gave_up = trial.runtime.block_on(leave_early(trial.limiter_beside()));
    let waiting = || trial.limiter.store().store().stats().waiting;
    // The callers of the trial itself wait too, now and then: none of them at one moment shows that none is stuck.
    wait::until_true("every place to come back", || waiting() == 0);
    let findings = trial.finished().unnoticed().conserved();
    // How many have no answer yet when they leave depends on how fast the machine is; a handful would show nothing.
    findings.that(gave_up > CALLERS / 40, || format!("only {gave_up} callers gave up")).row(name)
}

/// Asks, and drops half the questions at whatever await they have reached. Returns how many had no answer yet.
async fn leave_early(limiter: Limiter) -> u64 {
    let mut gave_up = 0;
    for batch in 0..CALLERS / BATCH {
        let ask = |number| tokio::spawn(ask(limiter.clone(), batch * BATCH + number));
        let asked: Vec<_> = (0..BATCH).map(ask).collect();
        for task in asked {
            gave_up += u64::from(task.await.expect("no panic"));
        }
    }
    gave_up
}

/// Every other caller stays. The others leave after a few turns of the scheduler, which is finer than any timer.
async fn ask(limiter: Limiter, number: u64) -> bool {
    let key = format!("impatient:{}", number % 10);
    let patience = if number.is_multiple_of(2) { u64::MAX } else { PATIENCE[(number / 2 % 8) as usize] };
    tokio::select! {
        biased;
        _ = limiter.allow(&key, [HOT_PLAN], 1) => false,
        () = turns(patience) => true,
    }
}

async fn turns(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}
