//! The master of three sentinels is replaced.

use spile_core::FailurePolicy;
use spile_testkit::redis::{RedisSentinel, RedisServer};
use spile_testkit::wait;

use super::Listed;
use crate::callers::hot_limit;
use crate::findings::{Findings, RECOVERY};
use crate::report::Row;
use crate::trial::{Setup, Trial};

pub(super) const ALL: &[Listed] = &[
    ("13 sentinel: FAILOVER", failover),
    ("13 sentinel: FAILOVER, one hangs", failover_while_one_hangs),
    ("13 sentinel: kill -9 the master", killed),
    ("13 sentinel: SIGSTOP the master", frozen),
    ("14 split brain", split_brain),
];

fn failover(name: &'static str) -> Row {
    let sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    trial.heal(|| sentinel.fail_over());
    judged(trial).row(name)
}

/// The sentinel that is asked first, and would have told of the switch, says nothing.
fn failover_while_one_hangs(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    sentinel.sentinels()[0].freeze();
    trial.heal(|| sentinel.fail_over());
    // The old master takes writes until the sentinels get round to it, and then refuses them.
    sentinel.wait_for_replica();
    judged(trial).row(name)
}

fn killed(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    let master = sentinel.master();
    sentinel.nodes()[master].kill();
    trial.heal(|| sentinel.wait_for_switch(master));
    judged(trial).felt().row(name)
}

/// The old master wakes up believing that it still is one.
fn frozen(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    let master = sentinel.master();
    sentinel.nodes()[master].freeze();
    trial.heal(|| sentinel.wait_for_switch(master));
    sentinel.nodes()[master].thaw();
    judged(trial).felt().row(name)
}

/// The old master takes writes all along, and the sentinel that is asked first vouches for it.
fn split_brain(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    trial.heal(|| sentinel.split());
    wait::lasting(RECOVERY);
    let before = decided(&sentinel.nodes()[0]);
    wait::lasting(RECOVERY / 2);
    let by_the_old_master = decided(&sentinel.nodes()[0]) - before;
    sentinel.join();
    judged(trial)
        .that(by_the_old_master == 0, || {
            format!("the old master decided {by_the_old_master} times a second after it was replaced")
        })
        .row(name)
}

/// How often the script has been called there.
fn decided(server: &RedisServer) -> u64 {
    let field = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
    let calls = field.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

fn under_load(sentinel: &RedisSentinel) -> Trial {
    Setup::policy(FailurePolicy::Local).state_may_be_lost().start(&sentinel.url())
}

/// What had not reached the replica is forgotten, which gives back at most one capacity.
fn judged(trial: Trial) -> Findings {
    let lost = hot_limit().capacity().as_f64();
    trial.finished().conserved_but_for(lost).recovered()
}
