//! The embedded store is bounded: in keys, in memory, and in what a flood can do to others.

use std::time::Duration;

use spile_core::{Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, NamedLimit};
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

#[test]
fn a_flood_of_unique_keys_neither_grows_memory_nor_frees_a_drained_key() {
    let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(20_000).build();
    let limit = per_day(10);
    let drained: Vec<String> = (0..10_000).map(|n| format!("drained {n}")).collect();
    for key in &drained {
        assert!(store.spend_now(&charge(key, &limit, 10)).allowed);
    }
    let flood = |from: u32, to: u32| {
        for key in from..to {
            assert!(store.spend_now(&charge(&format!("flood {key}"), &limit, 1)).allowed);
        }
    };
    flood(0, 20_000);
    let at_the_bound = store.usage().bytes;
    flood(20_000, 200_000);
    let usage = store.usage();
    assert!(usage.keys <= 20_000, "{} keys are held", usage.keys);
    assert!(usage.bytes <= 20_000 * 80, "{} bytes are held", usage.bytes);
    assert_eq!(usage.bytes, at_the_bound, "memory stays where the bound put it");
    assert!(usage.evicted >= 180_000, "evictions are counted");
    for key in &drained {
        assert!(!store.spend_now(&charge(key, &limit, 1)).allowed, "{key} started afresh");
    }
}

#[test]
fn a_drained_key_under_a_fast_limit_outlives_a_flood_under_a_slow_one() {
    let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(1_000).build();
    let login = named("login", Limit::per_minute(5).build().expect("in bounds"));
    assert!(store.spend_now(&charge("victim", &login, 5)).allowed);
    for flood in 0..10_000 {
        let _ = store.spend_now(&charge(&format!("flood {flood}"), &per_day(10), 1));
    }
    assert!(!store.spend_now(&charge("victim", &login, 1)).allowed, "fullness counts, not the time to full");
}

#[test]
fn buckets_that_are_full_again_make_room_without_an_eviction() {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).max_keys(5_000).build();
    let limit = named("fast", Limit::per_second(10).build().expect("in bounds"));
    for round in 0..20 {
        for caller in 0..1_000 {
            let _ = store.spend_now(&charge(&format!("{round}/{caller}"), &limit, 1));
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
            let _ = store.spend_now(&charge(&format!("caller {caller}"), &per_day(10), 1));
        }
        assert_eq!(store.usage().keys, most);
    }
}

#[test]
fn the_fullest_goes_first() {
    let store = MemoryStore::builder().clock(FakeClock::default()).max_keys(3).build();
    for (key, cost) in [("one left", 9), ("nine left", 1), ("five left", 5), ("newcomer", 10)] {
        assert!(store.spend_now(&charge(key, &per_day(10), cost)).allowed);
    }
    let left = |key: &str| {
        let limit = per_day(10);
        let outcome = store.spend_now(&charge(key, &limit, 0));
        outcome.buckets[0].available(limit.limit(), outcome.at).whole_tokens()
    };
    assert_eq!(
        (left("one left"), left("nine left"), left("five left"), left("newcomer")),
        (1, 10, 5, 0),
        "only the fullest was forgotten"
    );
}
