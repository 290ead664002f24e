//! Who is compared: governor in three configurations, Spile's store and Spile's whole limiter.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{QuantaClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter as GovernorLimiter};
use spile_core::{Cost, Key, Limit, NamedLimit, Plan};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;

/// Somebody who decides about keys.
pub(crate) trait Subject: Sync {
    fn name(&self) -> &'static str;
    /// Makes every key known.
    fn fill(&self, keys: &[String]) {
        self.decide(keys, 0, keys.len());
    }
    /// Decides `count` times, walking the keys from `offset`.
    fn decide(&self, keys: &[String], offset: usize, count: usize);
}

/// Calls `decide` for `count` keys from `offset`, round and round.
fn walk(keys: &[String], offset: usize, count: usize, mut decide: impl FnMut(&String)) {
    for key in keys.iter().cycle().skip(offset).take(count) {
        decide(key);
    }
}

fn quota() -> Quota {
    // Large enough that every decision is an admission, on both sides.
    let tokens = NonZeroU32::new(1_000_000_000).expect("not zero");
    Quota::per_second(tokens).allow_burst(tokens)
}

type Dash<H> = DashMapStateStore<String, H>;

pub(crate) struct GovernorStd(GovernorLimiter<String, Dash<std::hash::RandomState>, QuantaClock, Nothing>);
pub(crate) struct Governor(GovernorLimiter<String, Dash<foldhash::fast::RandomState>, QuantaClock, Nothing>);
pub(crate) struct GovernorCoarse(
    GovernorLimiter<String, Dash<foldhash::fast::RandomState>, QuantaUpkeepClock, CoarseNothing>,
);

type Nothing = NoOpMiddleware<governor::clock::QuantaInstant>;
type CoarseNothing = NoOpMiddleware<governor::clock::QuantaInstant>;

impl GovernorStd {
    pub(crate) fn boxed(_keys: usize) -> Box<dyn Subject> {
        Box::new(Self(GovernorLimiter::dashmap(quota())))
    }
}

impl Governor {
    pub(crate) fn boxed(_keys: usize) -> Box<dyn Subject> {
        Box::new(Self(GovernorLimiter::dashmap_with_hasher(quota(), foldhash::fast::RandomState::default())))
    }
}

impl GovernorCoarse {
    pub(crate) fn boxed(_keys: usize) -> Box<dyn Subject> {
        let clock =
            QuantaUpkeepClock::from_interval(Duration::from_millis(1)).expect("the upkeep thread starts");
        let hasher = foldhash::fast::RandomState::default();
        Box::new(Self(GovernorLimiter::dashmap_with_clock_and_hasher(quota(), clock, hasher)))
    }
}

impl Subject for GovernorStd {
    fn name(&self) -> &'static str {
        "governor, as it comes"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| assert!(black_box(self.0.check_key(key)).is_ok()));
    }
}

impl Subject for Governor {
    fn name(&self) -> &'static str {
        "governor, fastest hasher"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| assert!(black_box(self.0.check_key(key)).is_ok()));
    }
}

impl Subject for GovernorCoarse {
    fn name(&self) -> &'static str {
        "governor, fastest hasher, 1 ms clock"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| assert!(black_box(self.0.check_key(key)).is_ok()));
    }
}

fn plan() -> Plan {
    Plan::new("bench", Limit::per_second(1_000_000_000)).expect("in bounds")
}

/// The embedded store alone: the same work as governor's, a key and a limit at hand.
pub(crate) struct SpileStore {
    store: MemoryStore,
    limit: NamedLimit,
}

impl SpileStore {
    pub(crate) fn boxed(keys: usize) -> Box<dyn Subject> {
        let store = MemoryStore::builder().max_keys((keys * 5 / 4).max(100_000)).sweep(0).build();
        Box::new(Self { store, limit: plan().limits()[0].clone() })
    }
}

impl Subject for SpileStore {
    fn name(&self) -> &'static str {
        "Spile, the store"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| {
            let key = Key::new(key).expect("a key");
            assert!(black_box(self.store.spend_one(key, &self.limit, Cost::ONE)).allowed);
        });
    }
}

/// The whole question by plan name: look-up, deadline, policy and the full decision.
pub(crate) struct SpileLimiter(RateLimiter<MemoryStore>);

impl SpileLimiter {
    pub(crate) fn boxed(keys: usize) -> Box<dyn Subject> {
        let store = MemoryStore::builder().max_keys((keys * 5 / 4).max(100_000)).sweep(0).build();
        Box::new(Self(RateLimiter::builder().store(store).plans([plan()]).build()))
    }
}

impl Subject for SpileLimiter {
    fn name(&self) -> &'static str {
        "Spile, the limiter by plan name"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for key in keys.iter().cycle().skip(offset).take(count) {
                let decision = self.0.allow(key, ["bench"], 1).await.expect("a sound question");
                assert!(black_box(decision).allowed());
            }
        });
    }
}
