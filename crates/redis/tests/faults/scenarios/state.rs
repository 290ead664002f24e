//! What Redis holds is not what was put there, or it will not take more.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::{RedisReply, RedisServer};
use spile_testkit::wait;

use super::Listed;
use crate::callers::hot_limit;
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] =
    &[("11 wrong type, corrupt fields", corrupted), ("12 READONLY on a live socket", read_only)];

/// Each corruption costs at most one capacity, and is repaired by the next decision without an error.
fn corrupted(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Deny).state_may_be_lost().start(&server.url());
    let corruptions: &[&[&str]] = &[
        &["HSET", "t", "nan"],
        &["HSET", "t", "-2000000000000001"],
        &["HSET", "t", "1e308"],
        &["HSET", "t", "inf"],
        &["HSET", "ts", "nan"],
        &["HSET", "ts", "-1"],
        &["HSET", "ts", "1e308"],
        &["HSET", "t", ""],
        &["HSET", "v", "x"],
        &["HDEL", "t"],
        &["HDEL", "v"],
        &["LPUSH", "x"],
    ];
    for corruption in corruptions {
        for bucket in buckets(&server) {
            corrupt(&server, &bucket, corruption);
        }
        wait::lasting(Duration::from_millis(50));
    }
    let repairs = trial.limiter.store().store().stats().repairs;
    let bound = corruptions.len() as f64 * hot_limit().capacity().as_f64();
    let findings = trial.finished().unnoticed().conserved_but_for(bound);
    let counted = repairs >= corruptions.len() as u64;
    findings.that(counted, || format!("only {repairs} repairs were counted")).row(name)
}

/// Puts the corruption in place in one step, or a caller would spend in between.
fn corrupt(server: &RedisServer, bucket: &str, corruption: &[&str]) {
    let mut transaction = server.connect().expect("a connection");
    let (command, arguments) = corruption.split_first().expect("a command");
    let words: Vec<_> = [*command, bucket].into_iter().chain(arguments.iter().copied()).collect();
    transaction.command(&["MULTI"]).expect("a transaction");
    if *command == "LPUSH" {
        transaction.command(&["DEL", bucket]).expect("queued");
    }
    transaction.command(&words).expect("queued");
    transaction.command(&["EXEC"]).expect("a corrupted bucket");
}

fn buckets(server: &RedisServer) -> Vec<String> {
    server.command(&["KEYS", "spile:*"]).list().iter().map(RedisReply::text).map(str::to_owned).collect()
}

/// The server becomes a replica of nobody who answers: its data stay, and it takes no writes.
fn read_only(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| server.command(&["REPLICAOF", "NO", "ONE"]));
    trial.finished().felt().conserved().recovered().row(name)
}
