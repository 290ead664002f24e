//! A node of a cluster is replaced, or its slots move away.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::{RedisCluster, Takeover};
use spile_testkit::wait;

use super::Listed;
use crate::callers::hot_limit;
use crate::findings::Findings;
use crate::report::Row;
use crate::trial::{Setup, Trial};

pub(super) const ALL: &[Listed] = &[
    ("15 cluster: FAILOVER", |name| failover(name, Takeover::Graceful)),
    ("15 cluster: FAILOVER FORCE", |name| failover(name, Takeover::Force)),
    ("15 cluster: FAILOVER TAKEOVER", |name| failover(name, Takeover::Alone)),
    ("15 cluster: kill -9 a master", killed),
    ("16 cluster: resharding under load", resharded),
];

fn failover(name: &'static str, how: Takeover) -> Row {
    let cluster = RedisCluster::start();
    let trial = under_load(&cluster);
    trial.heal(|| cluster.fail_over(hot_slot(&cluster), how));
    judged(trial).row(name)
}

fn killed(name: &'static str) -> Row {
    let mut cluster = RedisCluster::start();
    let trial = under_load(&cluster);
    let slot = hot_slot(&cluster);
    let (master, replica) = (cluster.master_of(slot), cluster.replica_of(slot));
    cluster.node_mut(master).kill();
    trial.heal(|| cluster.wait_for_master(slot, replica));
    cluster.wait_until_whole();
    judged(trial).felt().row(name)
}

/// Nothing is lost when a slot moves with its keys, so nothing is excused.
fn resharded(name: &'static str) -> Row {
    let cluster = RedisCluster::start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&cluster.url());
    let slot = hot_slot(&cluster);
    for _ in 0..6 {
        let to = (cluster.master_of(slot) + 1) % 3;
        trial.heal(|| cluster.move_slot(slot, to));
        wait::lasting(Duration::from_millis(100));
    }
    trial.finished().conserved().recovered().row(name)
}

fn under_load(cluster: &RedisCluster) -> Trial {
    Setup::policy(FailurePolicy::Local).state_may_be_lost().start(&cluster.url())
}

/// What had not reached the replica is forgotten, which gives back at most one capacity.
fn judged(trial: Trial) -> Findings {
    let lost = hot_limit().capacity().as_f64();
    trial.finished().conserved_but_for(lost).recovered()
}

/// The slot of the bucket that everybody wants.
fn hot_slot(cluster: &RedisCluster) -> u16 {
    cluster.slot_of("spile:{everybody}:hot")
}
