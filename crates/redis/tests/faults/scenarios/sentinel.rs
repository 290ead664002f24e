//! The master of three sentinels is replaced.

use spile_core::FailurePolicy;
use spile_testkit::redis::RedisSentinel;

use super::Listed;
use crate::callers::hot_limit;
use crate::findings::Findings;
use crate::report::Row;
use crate::trial::{Setup, Trial};

pub(super) const ALL: &[Listed] = &[
    ("13 sentinel: FAILOVER", failover),
    ("13 sentinel: FAILOVER, one hangs", failover_while_one_hangs),
    ("13 sentinel: kill -9 the master", killed),
    ("13 sentinel: SIGSTOP the master", frozen),
];

fn failover(name: &'static str) -> Row {
    let sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    sentinel.fail_over();
    judged(trial).row(name)
}

/// The sentinel that is asked first, and would have told of the switch, says nothing.
fn failover_while_one_hangs(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    sentinel.sentinels()[0].freeze();
    sentinel.fail_over();
    // The old master takes writes until the sentinels get round to it, and then refuses them.
    sentinel.wait_for_replica();
    judged(trial).row(name)
}

fn killed(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    let master = sentinel.master();
    sentinel.nodes()[master].kill();
    sentinel.wait_for_switch(master);
    judged(trial).felt().row(name)
}

/// The old master wakes up believing that it still is one.
fn frozen(name: &'static str) -> Row {
    let mut sentinel = RedisSentinel::start();
    let trial = under_load(&sentinel);
    let master = sentinel.master();
    sentinel.nodes()[master].freeze();
    sentinel.wait_for_switch(master);
    sentinel.nodes()[master].thaw();
    judged(trial).felt().row(name)
}

fn under_load(sentinel: &RedisSentinel) -> Trial {
    Setup::policy(FailurePolicy::Local).state_may_be_lost().start(&sentinel.url())
}

/// What had not reached the replica is forgotten, which gives back at most one capacity.
fn judged(trial: Trial) -> Findings {
    let lost = f64::from(hot_limit().capacity());
    trial.healed().conserved_but_for(lost).recovered()
}
