//! The embedded store is bounded: in keys, in memory, and in what a flood can do to others.

use std::time::Duration;

use spile_core::{
    Amount, Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, Micros, NamedLimit, Operation, PermitId,
    PermitStep, QuotaWindows, Verdict, Window, Windows,
};
use spile_memory::MemoryStore;

fn charge<'k>(key: &'k str, limit: &NamedLimit, cost: u64) -> Charges<'k> {
    let cost = Cost::new(cost).expect("in bounds");
    Charge::new(Key::new(key).expect("a key"), limit.clone(), cost).expect("covered").into()
}

fn named(name: &str, limit: Limit) -> NamedLimit {
    NamedLimit::new(LimitName::new(name).expect("a name"), limit)
}

fn per_day(tokens: u64) -> NamedLimit {
    named("daily", Limit::per_day(tokens).build().expect("in bounds"))
}

/// Windows of a day.
#[derive(Debug)]
struct Days;

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("day")
    }
}

impl Windows for Days {
    fn window_at(&self, now: Micros) -> Window {
        let start = now.get() - now.get() % 86_400_000_000;
        Window { start: Micros::new(start), end: Micros::new(start + 86_400_000_000) }
    }

    fn period(&self) -> Duration {
        Duration::from_secs(86_400)
    }

    fn longest(&self) -> Duration {
        self.period()
    }
}

/// Ten tokens a day, as a rate and as a quota.
fn ten_a_day() -> [NamedLimit; 2] {
    let quota = Limit::per_window(10, QuotaWindows::new(Days));
    [per_day(10), named("quota", quota.build().expect("in bounds"))]
}

fn spends(store: &MemoryStore<FakeClock>, charges: &Charges<'_>) -> bool {
    store.run(Operation::Spend, charges).verdict == Verdict::Done
}

/// Asks for a different key each time, some 250,000 times a second by the store's clock.
fn flood(
    store: &MemoryStore<FakeClock>,
    clock: &FakeClock,
    keys: std::ops::Range<u32>,
    limit: &NamedLimit,
    cost: u64,
) {
    for key in keys {
        clock.advance(Duration::from_micros(4));
        assert!(spends(store, &charge(&format!("flood {key}"), limit, cost)));
    }
}

/// The keys of the flood are hardly touched, half drained or fully drained.
#[test]
fn a_flood_of_unique_keys_neither_grows_memory_nor_frees_a_drained_key() {
    let [rate, quota] = ten_a_day();
    for (limit, cost) in [&rate, &quota].into_iter().flat_map(|limit| [1, 5, 6, 10].map(|cost| (limit, cost)))
    {
        let clock = FakeClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).max_keys(5_000).build();
        let drained: Vec<String> = (0..1_500).map(|n| format!("drained {n}")).collect();
        for key in &drained {
            assert!(spends(&store, &charge(key, limit, 10)));
        }
        // They refill a little before the flood begins, so the flood is emptier.
        clock.advance(Duration::from_secs(3_600));
        flood(&store, &clock, 0..5_000, limit, cost);
        let at_the_bound = store.usage().bytes;
        flood(&store, &clock, 5_000..25_000, limit, cost);
        let usage = store.usage();
        assert!(usage.keys <= 5_000, "{} keys are held", usage.keys);
        assert!(usage.bytes <= 5_000 * 80, "{} bytes are held", usage.bytes);
        assert_eq!(usage.bytes, at_the_bound, "memory stays where the bound put it");
        assert!(usage.evicted >= 20_000, "evictions are counted");
        let freed = drained.iter().filter(|key| spends(&store, &charge(key, limit, 1))).count();
        assert_eq!(freed, 0, "keys that a flood at {cost} of 10 gave a fresh start");
    }
}

#[test]
fn a_key_that_comes_during_a_flood_of_drained_keys_is_limited_all_the_same() {
    for limit in &ten_a_day() {
        let clock = FakeClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).max_keys(5_000).build();
        flood(&store, &clock, 0..12_000, limit, 10);
        let newcomers: Vec<String> = (0..100).map(|n| format!("newcomer {n}")).collect();
        for key in &newcomers {
            assert!(spends(&store, &charge(key, limit, 10)));
        }
        flood(&store, &clock, 12_000..13_500, limit, 10);
        for key in &newcomers {
            assert!(!spends(&store, &charge(key, limit, 1)), "{key} started afresh");
        }
    }
}

#[test]
fn a_bucket_that_was_asked_about_under_a_slower_limit_is_kept_until_that_limit_has_filled_it() {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).sweep(64).build();
    let fast = named("login", Limit::per_second(10).build().expect("in bounds"));
    let slow = named("login", Limit::per_day(10).build().expect("in bounds"));
    let other = named("other", Limit::per_day(10).build().expect("in bounds"));
    let chained = |key, cost| {
        let of = |limit: &NamedLimit| charge(key, limit, cost).into_iter().next().expect("one charge");
        Charges::new([of(&slow), of(&other)]).expect("two buckets")
    };
    let keys = ["alone", "alone at cost 0", "chained", "chained at cost 0", "partial"];
    for key in keys {
        assert!(spends(&store, &charge(key, &fast, 10)));
    }
    assert!(!spends(&store, &charge("alone", &slow, 1)));
    assert!(!spends(&store, &charge("alone at cost 0", &slow, 0)));
    assert!(!spends(&store, &chained("chained", 1)));
    assert!(!spends(&store, &chained("chained at cost 0", 0)));
    let partial = store.run(Operation::SpendUpTo, &charge("partial", &slow, 1));
    assert_eq!(partial.amount, Amount::ZERO);
    clock.advance(Duration::from_secs(2));
    for stranger in 0..20_000 {
        let _ = store.run(Operation::Spend, &charge(&format!("stranger {stranger}"), &fast, 1));
    }
    for key in keys {
        assert!(!spends(&store, &charge(key, &slow, 1)), "{key} started afresh");
    }
}

#[test]
fn a_drained_key_under_a_fast_limit_outlives_a_flood_under_a_slow_one() {
    let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(1_000).build();
    let login = named("login", Limit::per_minute(5).build().expect("in bounds"));
    assert!(spends(&store, &charge("victim", &login, 5)));
    for flood in 0..10_000 {
        let _ = store.run(Operation::Spend, &charge(&format!("flood {flood}"), &per_day(10), 1));
    }
    assert!(!spends(&store, &charge("victim", &login, 1)), "fullness counts, not the time to full");
}

#[test]
fn buckets_that_are_full_again_make_room_without_an_eviction() {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).max_keys(5_000).build();
    let limit = named("fast", Limit::per_second(10).build().expect("in bounds"));
    for round in 0..20 {
        for caller in 0..1_000 {
            let _ = store.run(Operation::Spend, &charge(&format!("{round}/{caller}"), &limit, 1));
        }
        clock.advance(Duration::from_secs(1));
    }
    let usage = store.usage();
    assert_eq!(usage.evicted, 0);
    assert!(usage.keys < 3_000, "twenty thousand came, and {} linger", usage.keys);
}

#[test]
fn the_bound_is_exact_however_small() {
    for most in [1, 2, 3, 17] {
        let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(most).build();
        for caller in 0..100 {
            let _ = store.run(Operation::Spend, &charge(&format!("caller {caller}"), &per_day(10), 1));
        }
        assert_eq!(store.usage().keys, most);
    }
}

#[test]
fn the_fullest_goes_first() {
    let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(3).build();
    for (key, cost) in [("one left", 9), ("nine left", 1), ("five left", 5), ("newcomer", 10)] {
        assert!(spends(&store, &charge(key, &per_day(10), cost)));
    }
    let left = |key: &str| {
        let limit = per_day(10);
        let reply = store.run(Operation::Spend, &charge(key, &limit, 0));
        reply.buckets[0].available(limit.limit(), reply.at).whole_tokens()
    };
    assert_eq!(
        (left("one left"), left("nine left"), left("five left"), left("newcomer")),
        (1, 10, 5, 0),
        "only the fullest was forgotten"
    );
}

fn takes(store: &MemoryStore<FakeClock>, key: &str, jobs: &NamedLimit, number: u128) -> bool {
    let id = PermitId::new(Micros::new(1), Duration::ZERO, number, "").expect("an id");
    store.run(Operation::Permit(&id, PermitStep::Acquire), &charge(key, jobs, 1)).verdict == Verdict::Done
}

#[test]
fn a_key_has_as_many_places_as_its_limit_says_and_all_keys_have_a_bound() {
    let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(20_100).build();
    let jobs = named("jobs", Limit::concurrent(20_000).build().expect("in bounds"));
    assert_eq!((0..20_001).filter(|number| takes(&store, "ann", &jobs, *number)).count(), 20_000);
    let others = (0..200).filter(|number| takes(&store, &format!("caller {number}"), &jobs, *number));
    assert_eq!(others.count(), 100);
    assert_eq!(store.usage().permits, 20_100);
}

/// 16,384 keys make four shards: most keys use another shard than the one whose permits have ended.
#[test]
fn permits_that_have_ended_keep_no_other_key_out() {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).max_keys(16_384).build();
    let hold = Duration::from_secs(2);
    let jobs = named("jobs", Limit::concurrent(20_000).hold(hold).build().expect("in bounds"));
    for round in 0..16 {
        let greedy = format!("greedy {round}");
        assert_eq!((0..20_000).filter(|number| takes(&store, &greedy, &jobs, *number)).count(), 16_384);
        assert!(!takes(&store, "other", &jobs, 1), "the store is full");
        clock.advance(hold);
        assert!(takes(&store, &format!("other {round}"), &jobs, 1), "all permits have ended");
        clock.advance(hold);
    }
}

/// Permits of many keys end one by one while others ask.
#[test]
fn a_caller_that_a_full_store_denied_is_let_in_a_second_after_a_permit_ended() {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).max_keys(16_384).build();
    let jobs = named("jobs", Limit::concurrent(1).hold(Duration::from_secs(2)).build().expect("in bounds"));
    for number in 0..16_384 {
        assert!(takes(&store, &format!("caller {number}"), &jobs, number));
    }
    clock.advance(Duration::from_millis(1_900));
    assert!(!takes(&store, "patient", &jobs, 1), "nothing has ended");
    clock.advance(Duration::from_secs(1));
    assert!(takes(&store, "patient", &jobs, 1));
}

#[test]
fn all_permits_that_end_too_late_are_shortened() {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let jobs = |hold| Limit::concurrent(1_500).hold(Duration::from_secs(hold)).build().expect("in bounds");
    let (long, short) = (named("jobs", jobs(86_400)), named("jobs", jobs(30)));
    assert!((0..1_500).all(|number| takes(&store, "ann", &long, number)));
    assert!(!takes(&store, "ann", &short, 2_000));
    clock.advance(Duration::from_secs(31));
    assert_eq!((3_000..4_600).filter(|number| takes(&store, "ann", &short, *number)).count(), 1_500);
}
