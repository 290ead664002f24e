//! The network between us and Redis misbehaves.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::ledger::GRACE;
use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;
use tokio::runtime::Runtime;

use super::Listed;
use crate::findings::Findings;
use crate::trial::{DEADLINE, Setup, Trial};

pub(super) const ALL: &[Listed] = &[
    ("18 network: delay 5 ms", |name| lasting(Mode::Delay(Duration::from_millis(5))).unnoticed().row(name)),
    ("18 network: delay 200 ms", |name| {
        lasting(Mode::Delay(Duration::from_millis(200))).felt().because("timeout").row(name)
    }),
    ("18 network: one byte at a time", |name| lasting(Mode::OneByte).unnoticed().row(name)),
    ("18 network: cut mid-reply", |name| lasting(Mode::CutMidReply).felt().row(name)),
    ("18 network: cut, for moments", |name| for_moments(Mode::CutMidReply).felt().row(name)),
    ("18 network: half-open", |name| lasting(Mode::HalfOpen).felt().because("timeout").row(name)),
    ("18 network: half-open, for moments", |name| {
        for_moments(Mode::HalfOpen).felt().because("timeout").row(name)
    }),
    ("18 network: RST", |name| lasting(Mode::Reset).felt().row(name)),
    ("18 network: RST, for moments", |name| for_moments(Mode::Reset).felt().row(name)),
    ("18 network: garbage", |name| lasting(Mode::Garbage).felt().because("badresponse").row(name)),
    ("18 network: swapped replies", |name| {
        for_moments(Mode::Swapped).felt().because("badresponse").row(name)
    }),
    ("19 replies lost", |name| lasting(Mode::DropReplies).felt().because("timeout").row(name)),
    ("19 replies lost, for moments", |name| {
        for_moments(Mode::DropReplies).felt().because("timeout").row(name)
    }),
];

/// Breaks the network for so long that the breaker opens.
fn lasting(mode: Mode) -> Findings {
    broken(|proxy, trial| {
        proxy.set(mode);
        wait::lasting(Duration::from_secs(1));
        trial.heal(|| proxy.set(Mode::Pass));
    })
}

/// Breaks the network again and again, each time so shortly that whoever tried once more would succeed: that is where
/// charges are made twice and replies are taken for another's.
fn for_moments(mode: Mode) -> Findings {
    broken(|proxy, trial| {
        for _ in 0..10 {
            trial.wait_for_calm();
            let struck = proxy.struck();
            proxy.set(mode);
            wait::lasting(Duration::from_millis(5));
            // A busy machine may take longer to bring the fault about.
            wait::until_true("the fault to strike", || proxy.struck() > struck);
            trial.heal(|| proxy.set(Mode::Pass));
            // Longer than the deadline, so that whoever waits in vain has been told before calm is looked for.
            wait::lasting(DEADLINE + GRACE);
        }
    })
}

/// The witnesses among the callers notice an answer to somebody else's question and a charge made twice.
fn broken(fault: impl FnOnce(&Proxy, &Trial)) -> Findings {
    let beside = Runtime::new().expect("a runtime for the proxy");
    let server = RedisServer::start();
    let proxy = beside.block_on(Proxy::start(&server.address()));
    let trial = Setup::policy(FailurePolicy::Allow).start(&proxy.url());
    fault(&proxy, &trial);
    trial.finished().conserved().recovered()
}
