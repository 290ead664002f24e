//! Steps of the wall clock, as seen by a store on the machine's clock, which does not step.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use spile_calendar::CalendarLimit;
use spile_core::{
    Charge, Charges, Clock, Cost, FakeClock, Key, Limit, LimitName, Micros, NamedLimit, Operation, PermitId,
    PermitStep, Verdict,
};
use spile_memory::MemoryStore;

/// Steady time, and a wall clock that is corrected beside it.
#[derive(Clone)]
struct CorrectedClock {
    steady: FakeClock,
    ahead_us: Arc<AtomicI64>,
}

impl Clock for CorrectedClock {
    fn now(&self) -> Micros {
        self.steady.now()
    }

    fn wall(&self) -> Micros {
        Micros::new(self.now().get().saturating_add_signed(self.wall_ahead_us()))
    }

    fn wall_ahead_us(&self) -> i64 {
        self.ahead_us.load(Ordering::Relaxed)
    }
}

const HOUR_US: i64 = 3_600_000_000;
/// The start of an hour.
const START: Micros = Micros::from_secs(1_000_000_800);

fn store() -> (MemoryStore<CorrectedClock>, CorrectedClock) {
    let clock = CorrectedClock { steady: FakeClock::at(START), ahead_us: Arc::default() };
    (MemoryStore::builder().clock(clock.clone()).max_keys(4_096).sweep(64).build(), clock)
}

fn charge(name: &str, limit: Limit, cost: u64) -> Charge<'static> {
    let limit = NamedLimit::new(LimitName::new(name).expect("a sound name"), limit);
    Charge::new(Key::new("ann").expect("a sound key"), limit, Cost::new(cost).expect("a cost"))
        .expect("covered")
}

fn spends(store: &MemoryStore<CorrectedClock>, charges: &Charges<'_>) -> bool {
    store.run(Operation::Spend, charges).verdict == Verdict::Done
}

/// Gives the store reasons to forget what it may forget.
fn sweep(store: &MemoryStore<CorrectedClock>) {
    let limit = NamedLimit::new(
        LimitName::new("other").expect("a name"),
        Limit::per_hour(1).build().expect("a limit"),
    );
    for number in 0..64 {
        let key = format!("other-{number}");
        let charge = Charge::new(Key::new(&key).expect("a key"), limit.clone(), Cost::ONE).expect("covered");
        store.run(Operation::Spend, &charge.into());
    }
}

#[test]
fn a_quota_follows_a_corrected_wall_clock_and_a_rate_does_not() {
    let quota = Limit::quota(5).per_hour().build().expect("a quota");
    let rate = Limit::per_hour(5).build().expect("a rate");
    let [all_of_quota, all_of_rate] = [charge("quota", quota, 5), charge("rate", rate, 5)].map(Charges::from);
    for (ahead_us, quota_is_new) in [(HOUR_US, true), (-30 * 60_000_000, false), (59 * 60_000_000, false)] {
        let (store, clock) = store();
        assert!(spends(&store, &all_of_quota) && spends(&store, &all_of_rate));
        clock.ahead_us.store(ahead_us, Ordering::Relaxed);
        sweep(&store);
        assert!(!spends(&store, &all_of_rate), "a step of {ahead_us} refills no rate");
        assert_eq!(spends(&store, &all_of_quota), quota_is_new, "a step of {ahead_us}");
    }
}

#[test]
fn a_rate_refills_by_steady_time_however_the_wall_clock_jumps() {
    let rate = charge("rate", Limit::per_second(1).burst(10).build().expect("a rate"), 10);
    let beside = charge("beside", Limit::per_second(100).build().expect("a rate"), 1);
    let (store, clock) = store();
    let (alone, chain) = (Charges::from(rate.clone()), Charges::new([rate, beside]).expect("a chain"));
    assert!(spends(&store, &alone));
    for (second, ahead_us) in [HOUR_US, -HOUR_US, 0, 5 * HOUR_US, -7 * HOUR_US].into_iter().enumerate() {
        clock.steady.advance(Duration::from_secs(1));
        clock.ahead_us.store(ahead_us, Ordering::Relaxed);
        sweep(&store);
        for charges in [&alone, &chain] {
            let denied = store.run(Operation::Spend, charges);
            let limit = charges[0].limit().limit();
            assert_eq!(denied.at, clock.wall());
            assert_eq!(denied.buckets[0].available(limit, denied.at), second as u64 + 1);
        }
    }
    clock.steady.advance(Duration::from_secs(5));
    assert!(spends(&store, &chain));
}

#[test]
fn a_permit_is_held_for_its_time_however_the_wall_clock_jumps() {
    let one = Charges::from(charge(
        "jobs",
        Limit::concurrent(1).hold(Duration::from_secs(30)).build().expect("a limit"),
        1,
    ));
    let (store, clock) = store();
    let permit = |number| PermitId::new(START, Duration::ZERO, number, "").expect("a holder");
    let acquire = |number| store.run(Operation::Permit(&permit(number), PermitStep::Acquire), &one).verdict;
    assert_eq!(acquire(1), Verdict::Done);
    for ahead_us in [HOUR_US, -HOUR_US] {
        clock.ahead_us.store(ahead_us, Ordering::Relaxed);
        clock.steady.advance(Duration::from_millis(14_999));
        assert_eq!(acquire(2), Verdict::Denied);
    }
    clock.steady.advance(Duration::from_millis(2));
    assert_eq!(acquire(2), Verdict::Done);
}
