//! The server stands still, is slow or dies.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::{RedisReply, RedisServer, ReplyError};
use spile_testkit::wait;

use super::Listed;
use crate::callers::hot_limit;
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[
    ("0 no fault", no_fault),
    ("1 frozen 0.1 s", |name| frozen(name, Duration::from_millis(100))),
    ("1 frozen 1 s", |name| frozen(name, Duration::from_secs(1))),
    ("1 frozen 3 s", |name| frozen(name, Duration::from_secs(3))),
    ("2 crash, restart empty", crash),
    ("2 down at start", down_at_start),
    ("3 slow: DEBUG SLEEP", slow),
    ("4 paused: CLIENT PAUSE WRITE", |name| paused(name, "WRITE")),
    ("4 paused: CLIENT PAUSE ALL", |name| paused(name, "ALL")),
    ("7 LOADING", loading),
];

/// What is left out unless it is asked for by name.
pub(super) const LONG: &[Listed] = &[("1 frozen 30 s", |name| frozen(name, Duration::from_secs(30)))];

fn no_fault(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    wait::lasting(Duration::from_secs(1));
    trial.finished().unnoticed().conserved().entitled().row(name)
}

fn frozen(name: &'static str, time: Duration) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Allow).start(&server.url());
    server.freeze();
    wait::lasting(time);
    trial.heal(|| server.thaw());
    trial.finished().felt().because("timeout").conserved().recovered().row(name)
}

fn crash(name: &'static str) -> Row {
    let mut server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Local).state_may_be_lost().start(&server.url());
    server.kill();
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| server.restart());
    let one_more = hot_limit().capacity().as_f64();
    trial.finished().felt().conserved_but_for(one_more).recovered().row(name)
}

fn down_at_start(name: &'static str) -> Row {
    let mut server = RedisServer::start();
    server.kill();
    let trial = Setup::policy(FailurePolicy::Allow).down_at_start().start(&server.url());
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| server.restart());
    trial.finished().felt().conserved().recovered().row(name)
}

fn slow(name: &'static str) -> Row {
    let server = RedisServer::builder().debug_commands().start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    trial.heal(|| server.command(&["DEBUG", "SLEEP", "1"]));
    trial.finished().felt().because("breakeropen").conserved().recovered().row(name)
}

fn paused(name: &'static str, what: &str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Allow).start(&server.url());
    let pause = Duration::from_millis(700);
    server.command(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), what]);
    trial.heal(|| wait::lasting(pause));
    trial.finished().felt().because("timeout").conserved().recovered().row(name)
}

/// Restarts on a snapshot that takes a second to load, most of which the server spends refusing.
fn loading(name: &'static str) -> Row {
    let mut server = RedisServer::builder()
        .debug_commands()
        .line("key-load-delay 100")
        .line("loading-process-events-interval-bytes 1024")
        .start();
    server.command(&["DEBUG", "POPULATE", "8000", "ballast", "64"]);
    let trial = Setup::policy(FailurePolicy::Deny).state_may_be_lost().start(&server.url());
    server.command(&["SAVE"]);
    server.kill();
    server.launch_again();
    let refuses = |reply| matches!(reply, Err(ReplyError::Refused(why)) if why.starts_with("LOADING"));
    wait::until_true("the server to load", || refuses(server.try_command(&["GET", "ballast:1"])));
    let loaded = |reply| matches!(reply, Ok(RedisReply::Text(_)));
    trial.heal(|| {
        wait::until_true("the server to have loaded", || loaded(server.try_command(&["GET", "ballast:1"])))
    });
    let since_the_snapshot = hot_limit().capacity().as_f64();
    trial.finished().felt().conserved_but_for(since_the_snapshot).recovered().row(name)
}
