//! Redis has no memory left.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use super::Listed;
use crate::callers::hot_limit;
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] =
    &[("8 out of memory, noeviction", refused), ("8 out of memory, volatile-ttl", evicted)];

fn refused(name: &'static str) -> Row {
    let server = RedisServer::builder().line("maxmemory-policy noeviction").start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| server.command(&["CONFIG", "SET", "maxmemory", "0"]));
    trial.finished().felt().because("rediserror").conserved().recovered().row(name)
}

/// How often all buckets are thrown out.
const EVICTIONS: u32 = 5;

/// Buckets are thrown out while they are in use: each time, one more capacity, and no error.
fn evicted(name: &'static str) -> Row {
    let server = RedisServer::builder().line("maxmemory-policy volatile-ttl").start();
    let trial = Setup::policy(FailurePolicy::Deny).state_may_be_lost().start(&server.url());
    for _ in 0..EVICTIONS {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        trial.heal(|| server.command(&["CONFIG", "SET", "maxmemory", "0"]));
        wait::lasting(Duration::from_millis(100));
    }
    let evictions: f64 =
        server.info("stats", "evicted_keys").and_then(|text| text.parse().ok()).unwrap_or(0.0);
    let bound = f64::from(EVICTIONS) * hot_limit().capacity().as_f64();
    let findings = trial.finished().conserved_but_for(bound).recovered();
    findings.that(evictions > 0.0, || "nothing was evicted".to_owned()).row(name)
}
