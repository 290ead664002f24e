//! The clock that decides is wrong.

use std::time::Duration;

use spile_core::{
    Charge, Charges, Clock, Cost, Decision, DecisionSource, FailurePolicy, FakeClock, Key, LimitName,
    NamedLimit, PlanName, StoreExt, SystemClock,
};
use spile_redis::{RedisStore, TimeSource};
use spile_testkit::ledger::Ledger;
use spile_testkit::redis::RedisServer;
use tokio::runtime::Runtime;

use super::Listed;
use crate::callers::hot_limit;
use crate::findings::Findings;
use crate::report::Row;
use crate::stall::Stalls;
use crate::trial::DEADLINE;

pub(super) const ALL: &[Listed] = &[("20 clock frozen, stepped, shaking", clock)];

/// Time never mints tokens and never locks anybody out.
fn clock(name: &'static str) -> Row {
    let server = RedisServer::start();
    let clock = FakeClock::at(SystemClock::wall_now());
    let subject = Subject::new(&server.url(), clock.clone());
    let capacity = hot_limit().capacity().whole_tokens();
    let hour = Duration::from_secs(3_600);
    let tick = Duration::from_millis(400);
    let mut wrong = Vec::new();
    let mut expect = |when: &str, expected: u64, got: u64| {
        if expected != got {
            wrong.push(format!("{when}: {got} were admitted, not {expected}"));
        }
    };

    expect("a full bucket", capacity, subject.drain());
    expect("a frozen clock", 0, subject.drain());
    for _ in 0..20 {
        clock.step_back(tick);
        expect("a clock that shakes, back", 0, subject.drain());
        clock.advance(tick);
        expect("a clock that shakes, on", 0, subject.drain());
    }
    clock.advance(Duration::from_millis(100));
    expect("a tenth of a second", 20, subject.drain());
    clock.step_back(hour);
    expect("an hour back", 0, subject.drain());
    clock.advance(Duration::from_millis(100));
    expect("a tenth of a second after an hour back", 20, subject.drain());
    clock.advance(hour);
    expect("an hour on", capacity, subject.drain());

    let findings = Findings::new(subject.ledger, FailurePolicy::Deny, None, &Stalls::default(), Vec::new());
    wrong.into_iter().fold(findings, |findings, wrong| findings.that(false, || wrong)).row(name)
}

/// One bucket by a clock that is set by hand.
struct Subject {
    runtime: Runtime,
    store: RedisStore,
    ledger: Ledger,
}

impl Subject {
    fn new(url: &str, clock: impl Clock + 'static) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let builder = RedisStore::builder(url).time(TimeSource::client(clock)).timeout(DEADLINE * 20);
        let store = runtime.block_on(async { builder.build() }).expect("a store URL");
        Self { runtime, store, ledger: Ledger::default() }
    }

    /// Spends until nothing is left, and returns how much that was; more than twice the capacity is not waited for.
    fn drain(&self) -> u64 {
        let name = LimitName::from(&PlanName::new("hot").expect("a name"));
        let key = Key::new("everybody").expect("a key");
        let charge = Charge::new(key, NamedLimit::new(name, hot_limit()), Cost::ONE).expect("covered");
        let charges = Charges::from(charge);
        (0..2 * hot_limit().capacity().whole_tokens()).take_while(|_| self.spends(&charges)).count() as u64
    }

    fn spends(&self, charges: &Charges<'_>) -> bool {
        let outcome = self.runtime.block_on(self.store.spend(charges)).expect("an answer");
        let decision = Decision::from_outcome(charges, &outcome, DecisionSource::Store);
        self.ledger.decided("everybody", &decision, outcome.at, Duration::ZERO);
        decision.allowed()
    }
}
