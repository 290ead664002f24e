//! Redis forgets the script, or is busy with somebody else's.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use super::Listed;
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[("5 SCRIPT FLUSH at 10 Hz", flushed), ("6 BUSY, then SCRIPT KILL", busy)];

fn flushed(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    for _ in 0..15 {
        server.command(&["SCRIPT", "FLUSH"]);
        wait::lasting(Duration::from_millis(100));
    }
    trial.finished().unnoticed().conserved().entitled().row(name)
}

fn busy(name: &'static str) -> Row {
    let server = RedisServer::builder().line("busy-reply-threshold 50").start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&server.url());
    std::thread::scope(|scope| {
        let looping = scope.spawn(|| server.try_command(&["EVAL", "while true do end", "0"]));
        wait::lasting(Duration::from_millis(800));
        trial.heal(|| server.command(&["SCRIPT", "KILL"]));
        looping.join().expect("no panic").expect_err("a script that was killed");
    });
    trial.finished().felt().conserved().recovered().row(name)
}
