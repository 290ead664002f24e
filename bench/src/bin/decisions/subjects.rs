//! Who is compared: governor in three configurations, Spile's store and Spile's whole limiter.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{QuantaClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter as GovernorLimiter};
use spile_core::{Cost, Decision, Key, Limit, NamedLimit, Plan, RateBuilder};
use spile_limiter::{KeyedLimiter, RateLimiter};
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

// Each is asked whether the request may pass, and so need not make what a caller does not look at. One row makes the compiler
// keep the whole decision, and looks at it where it is: `black_box` of the decision itself would move it once more.

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
        walk(keys, offset, count, |key| assert!(black_box(self.0.check_key(key).is_ok())));
    }
}

impl Subject for Governor {
    fn name(&self) -> &'static str {
        "governor, fastest hasher"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| assert!(black_box(self.0.check_key(key).is_ok())));
    }
}

impl Subject for GovernorCoarse {
    fn name(&self) -> &'static str {
        "governor, fastest hasher, 1 ms clock"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| assert!(black_box(self.0.check_key(key).is_ok())));
    }
}

/// Large enough that every decision is an admission, and slow enough that no bucket fills up again and leaves.
fn limit() -> RateBuilder {
    Limit::per(100_000_000, Duration::from_secs(10 * 365 * 86_400))
}

fn plan() -> Plan {
    Plan::new("bench", limit()).expect("in bounds")
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
            assert!(black_box(self.store.spend_one(key, &self.limit, Cost::ONE).allowed));
        });
    }
}

fn limiter(keys: usize) -> RateLimiter<MemoryStore> {
    let store = MemoryStore::builder().max_keys((keys * 5 / 4).max(100_000)).sweep(0).build();
    RateLimiter::builder().store(store).plans([plan()]).build()
}

/// One limit for every key.
pub(crate) struct SpileCheck(KeyedLimiter);

impl SpileCheck {
    pub(crate) fn boxed(_keys: usize) -> Box<dyn Subject> {
        Box::new(Self(RateLimiter::per_key(limit()).expect("in bounds")))
    }
}

impl Subject for SpileCheck {
    fn name(&self) -> &'static str {
        "Spile, `check`"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| {
            assert!(black_box(self.0.check(key).is_ok_and(|decision| decision.allowed())));
        });
    }
}

/// The same by a caller that looks at everything that a decision says.
pub(crate) struct SpileWholeCheck(KeyedLimiter);

impl SpileWholeCheck {
    pub(crate) fn boxed(_keys: usize) -> Box<dyn Subject> {
        Box::new(Self(RateLimiter::per_key(limit()).expect("in bounds")))
    }
}

impl Subject for SpileWholeCheck {
    fn name(&self) -> &'static str {
        "Spile, `check`, whole decision"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| {
            assert!(black_box(&self.0.check(key)).as_ref().is_ok_and(Decision::allowed));
        });
    }
}

/// The whole question by plan name without a future: look-up and the full decision.
pub(crate) struct SpileTryAllow(RateLimiter<MemoryStore>);

impl SpileTryAllow {
    pub(crate) fn boxed(keys: usize) -> Box<dyn Subject> {
        Box::new(Self(limiter(keys)))
    }
}

impl Subject for SpileTryAllow {
    fn name(&self) -> &'static str {
        "Spile, `try_allow` by plan name"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        walk(keys, offset, count, |key| {
            assert!(black_box(self.0.try_allow(key, "bench", 1).is_ok_and(|decision| decision.allowed())));
        });
    }
}

/// The same in a future, as it is asked with any store.
pub(crate) struct SpileLimiter(RateLimiter<MemoryStore>);

impl SpileLimiter {
    pub(crate) fn boxed(keys: usize) -> Box<dyn Subject> {
        Box::new(Self(limiter(keys)))
    }
}

impl Subject for SpileLimiter {
    fn name(&self) -> &'static str {
        "Spile, `allow` by plan name"
    }

    fn decide(&self, keys: &[String], offset: usize, count: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for key in keys.iter().cycle().skip(offset).take(count) {
                let decision = self.0.allow(key, "bench", 1).await;
                assert!(black_box(decision.is_ok_and(|decision| decision.allowed())));
            }
        });
    }
}
