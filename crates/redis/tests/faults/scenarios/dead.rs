//! Nothing answers at all.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;
use tokio::runtime::Runtime;

use super::Listed;
use crate::callers::hot_limit;
use crate::report::Row;
use crate::trial::Setup;

pub(super) const ALL: &[Listed] = &[
    ("17 all dead", |name| dead(name, Mode::Pass)),
    ("17 all dead, dials reset", |name| dead(name, Mode::Reset)),
];

/// I5: the most dials a second while nothing answers.
const DIALS_PER_SECOND: f64 = 20.0;

/// I5: what memory may grow by meanwhile. The ledger of the test itself takes part of it.
const MEMORY_KB: usize = 8 * 1024;

const DEAD_FOR: Duration = Duration::from_secs(3);

/// Counts dials by a proxy, since a port on which nobody listens counts none.
fn dead(name: &'static str, mode: Mode) -> Row {
    let beside = Runtime::new().expect("a runtime for the proxy");
    let mut server = RedisServer::start();
    let proxy = beside.block_on(Proxy::start(&server.address()));
    let trial = Setup::policy(FailurePolicy::Allow).state_may_be_lost().start(&proxy.url());
    let before = Footprint::of(&trial.runtime, &proxy);
    let dials_before = proxy.dials();
    server.kill();
    proxy.set(mode);
    wait::lasting(DEAD_FOR);
    let dials = (proxy.dials() - dials_before) as f64 / DEAD_FOR.as_secs_f64();
    proxy.set(Mode::Pass);
    trial.heal(|| server.restart());
    trial.wait_for_calm();
    let after = Footprint::of(&trial.runtime, &proxy);
    let one_more = hot_limit().capacity().as_f64();
    let findings = trial.finished().felt().conserved_but_for(one_more).recovered();
    findings
        .that(dials <= DIALS_PER_SECOND, || format!("{dials:.1} dials a second"))
        .that(after.tasks <= before.tasks, || format!("tasks grew from {before:?} to {after:?}"))
        .that(after.memory_kb <= before.memory_kb + MEMORY_KB, || {
            format!("memory grew from {before:?} to {after:?}")
        })
        .that(after.sockets <= before.sockets, || format!("sockets grew from {before:?} to {after:?}"))
        .row(name)
}

/// What must return to where it was.
#[derive(Debug)]
struct Footprint {
    tasks: usize,
    sockets: usize,
    memory_kb: usize,
}

impl Footprint {
    fn of(runtime: &Runtime, proxy: &Proxy) -> Self {
        Self { tasks: runtime.metrics().num_alive_tasks(), sockets: proxy.open(), memory_kb: memory_kb() }
    }
}

/// What the kernel says that this process holds.
fn memory_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
