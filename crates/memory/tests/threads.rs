//! Chains are atomic under concurrency: the buckets lost exactly the tokens that were admitted, on every interleaving.

#![allow(clippy::disallowed_methods, reason = "tests start threads")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use spile_core::{Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, NamedLimit, Operation, Verdict};
use spile_memory::MemoryStore;

const KEYS: usize = 12;
const CAPACITY: u64 = 2_000;

#[test]
fn random_chains_from_many_threads_conserve_every_token() {
    let store = Arc::new(MemoryStore::builder().clock(FakeClock::default()).build());
    let admitted: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let threads: Vec<_> = (0..8)
        .map(|seed| {
            let (store, admitted) = (Arc::clone(&store), Arc::clone(&admitted));
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..10_000 {
                    let (first, second) = (random.usize(..KEYS), random.usize(..KEYS));
                    let cost = random.u64(1..=3);
                    let (names, keys) = chain(first, second);
                    let charges = Charges::new(keys.iter().map(|&key| charge(&names[key], cost)));
                    let reply = store.run(Operation::Spend, &charges.expect("a chain"));
                    if reply.verdict == Verdict::Done {
                        for key in keys {
                            admitted[key].fetch_add(cost, Ordering::Relaxed);
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    for (key, admitted) in admitted.iter().enumerate() {
        let reply = store.run(Operation::Spend, &charge(&format!("key {key}"), 0).into());
        let held = reply.buckets[0].amount().whole_tokens();
        assert_eq!(held + admitted.load(Ordering::Relaxed), CAPACITY, "key {key} leaks or mints");
    }
}

/// Names of all keys, and one or two distinct ones in the order drawn.
fn chain(first: usize, second: usize) -> (Vec<String>, Vec<usize>) {
    let names = (0..KEYS).map(|key| format!("key {key}")).collect();
    let keys = if first == second { vec![first] } else { vec![first, second] };
    (names, keys)
}

fn charge(key: &str, cost: u64) -> Charge<'_> {
    // One token per day: nothing refills while the clock does not move anyway.
    let limit = Limit::per_day(1).burst(CAPACITY).build().expect("in bounds");
    let limit = NamedLimit::new(LimitName::new("limit").expect("a name"), limit);
    Charge::new(Key::new(key).expect("a key"), limit, Cost::new(cost).expect("in bounds")).expect("covered")
}
