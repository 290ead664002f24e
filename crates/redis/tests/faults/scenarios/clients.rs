//! Redis does not want to talk to us.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use super::Listed;
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[
    ("9 user switched off and on", user_off),
    ("9 password changed and back", password),
    ("10 maxclients", full),
];

const USER: &str = "user app on >s3cret ~spile:* +@all";

fn user_off(name: &'static str) -> Row {
    let server = RedisServer::builder().line(USER).start();
    let trial = Setup::policy(FailurePolicy::Allow).start(&as_app(&server));
    server.command(&["ACL", "SETUSER", "app", "off"]);
    // Whoever is connected stays so until it is thrown out.
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| server.command(&["ACL", "SETUSER", "app", "on"]));
    trial.finished().felt().conserved().recovered().row(name)
}

fn password(name: &'static str) -> Row {
    let server = RedisServer::builder().line(USER).start();
    let trial = Setup::policy(FailurePolicy::Deny).start(&as_app(&server));
    server.command(&["ACL", "SETUSER", "app", "resetpass", ">other"]);
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| server.command(&["ACL", "SETUSER", "app", ">s3cret"]));
    trial.finished().felt().conserved().recovered().row(name)
}

/// Every place is taken by somebody else, who leaves again.
fn full(name: &'static str) -> Row {
    let server = RedisServer::start();
    let trial = Setup::policy(FailurePolicy::Allow).start(&server.url());
    let mut only = server.connect().expect("a connection while there is room");
    for words in
        [&["CONFIG", "SET", "maxclients", "1"][..], &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]]
    {
        only.command(words).expect("an answer");
    }
    wait::lasting(Duration::from_millis(500));
    trial.heal(|| only.command(&["CONFIG", "SET", "maxclients", "1000"]).expect("an answer"));
    trial.finished().felt().conserved().recovered().row(name)
}

fn as_app(server: &RedisServer) -> String {
    format!("redis://app:s3cret@{}", server.address())
}
