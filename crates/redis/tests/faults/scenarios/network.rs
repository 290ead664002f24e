//! The network between us and Redis misbehaves.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;
use tokio::runtime::Runtime;

use super::Listed;
use crate::findings::Findings;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[
    ("18 network: delay 10 ms", |name| broken(Mode::Delay(Duration::from_millis(10))).unnoticed().row(name)),
    ("18 network: delay 200 ms", |name| {
        broken(Mode::Delay(Duration::from_millis(200))).felt().because("timeout").row(name)
    }),
    ("18 network: one byte at a time", |name| broken(Mode::OneByte).unnoticed().row(name)),
    ("18 network: cut mid-reply", |name| broken(Mode::CutMidReply).felt().row(name)),
    ("18 network: half-open", |name| broken(Mode::HalfOpen).felt().because("timeout").row(name)),
    ("18 network: RST", |name| broken(Mode::Reset).felt().row(name)),
    ("18 network: garbage", |name| broken(Mode::Garbage).felt().because("badresponse").row(name)),
    ("18 network: swapped replies", |name| broken(Mode::Swapped).felt().because("badresponse").row(name)),
    ("19 replies lost", |name| broken(Mode::DropReplies).felt().because("timeout").row(name)),
];

/// The witnesses among the callers would notice an answer to somebody else's question and a charge made twice.
fn broken(mode: Mode) -> Findings {
    let beside = Runtime::new().expect("a runtime for the proxy");
    let server = RedisServer::start();
    let proxy = beside.block_on(Proxy::start(&server.address()));
    let trial = Setup::policy(FailurePolicy::Allow).start(&proxy.url());
    proxy.set(mode);
    wait::lasting(Duration::from_secs(1));
    proxy.set(Mode::Pass);
    trial.healed().conserved().recovered()
}
