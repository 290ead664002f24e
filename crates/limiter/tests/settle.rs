//! Settling asks the store for what has to change, and for no more.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::fmt;
use std::time::Duration;

use spile_core::{
    Amount, Bucket, Decision, DecisionSource, FakeClock, Limit, Micros, OneOrMany, Outcome, Plan,
    QuotaWindows, Store, StoreError, Window, Windows,
};
use spile_limiter::{Ask, RateLimiter, Settled};
use spile_memory::MemoryStore;
use spile_policy::{Chain, ResolvedKey};
use spile_testkit::store::{CallFault, FaultyStore};

fn limiter() -> RateLimiter<FaultyStore<MemoryStore<FakeClock>>> {
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    RateLimiter::builder().store(FaultyStore::new(store, |_| CallFault::None)).build()
}

/// A chain that charges a user and a team, which hold ten tokens each.
fn chain(user: u64, team: u64) -> Chain {
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let mut chain = Chain::new(None);
    chain.charge(&ResolvedKey::custom("user", "ann"), &free, user).unwrap();
    chain.charge(&ResolvedKey::custom("team", "a"), &free, team).unwrap();
    chain
}

/// Settles, and returns how often the store was asked for it.
async fn settle(
    limiter: &RateLimiter<FaultyStore<MemoryStore<FakeClock>>>,
    chain: &Chain,
    decision: &Decision,
    tokens: u64,
) -> (Settled, u32) {
    let before = limiter.store().calls();
    let settled = limiter.settle(chain, decision, tokens).await.unwrap();
    (settled, limiter.store().calls() - before)
}

async fn left(limiter: &RateLimiter<FaultyStore<MemoryStore<FakeClock>>>, chain: &Chain) -> Vec<Amount> {
    let looked = limiter.peek_charges(chain.charges_at(|_| Amount::ZERO)).await;
    looked.limits().iter().map(spile_core::LimitStatus::remaining).collect()
}

/// The decision about a question with charges.
async fn decided<'a, S: Store + 'static>(limiter: &'a RateLimiter<S>, ask: impl Into<Ask<'a>>) -> Decision {
    limiter.decide(ask).await.into_decision().expect("it has charges")
}

#[tokio::test]
async fn a_request_that_cost_what_it_was_charged_does_not_ask_the_store() {
    let (limiter, chain) = (limiter(), chain(8, 8));
    let decision = decided(&limiter, Ask::from(&chain)).await;
    assert_eq!(settle(&limiter, &chain, &decision, 8).await, (Settled::default(), 0));
    assert_eq!(left(&limiter, &chain).await, [2, 2]);
}

#[tokio::test]
async fn less_than_was_charged_is_given_back_in_one_call() {
    let (limiter, chain) = (limiter(), chain(8, 8));
    let decision = decided(&limiter, Ask::from(&chain)).await;
    assert_eq!(settle(&limiter, &chain, &decision, 3).await.1, 1);
    assert_eq!(left(&limiter, &chain).await, [7, 7]);
}

#[tokio::test]
async fn a_key_that_paid_the_right_cost_is_left_alone_while_another_pays_more() {
    let (limiter, chain) = (limiter(), chain(8, 1));
    let decision = decided(&limiter, Ask::from(&chain)).await;
    assert_eq!(settle(&limiter, &chain, &decision, 8).await.1, 1);
    assert_eq!(left(&limiter, &chain).await, [2, 2]);
}

#[tokio::test]
async fn a_denied_request_gets_nothing_back() {
    let (limiter, chain) = (limiter(), chain(8, 1));
    let _allowed = decided(&limiter, Ask::from(&chain)).await;
    let denied = decided(&limiter, Ask::from(&chain)).await;
    assert!(!denied.allowed());
    assert_eq!(settle(&limiter, &chain, &denied, 0).await, (Settled::default(), 0));
    assert_eq!(left(&limiter, &chain).await, [2, 9]);
    let (settled, asked) = settle(&limiter, &chain, &denied, 3).await;
    assert_eq!((settled.uncovered, asked), (Amount::ZERO, 1), "the team pays two more");
    assert_eq!(left(&limiter, &chain).await, [2, 7]);
}

#[tokio::test]
async fn a_store_that_is_down_settles_nothing_and_says_so() {
    let (limiter, chain) = (limiter(), chain(1, 1));
    let decision = decided(&limiter, Ask::from(&chain)).await;
    limiter.store().set_fault(CallFault::Fail(StoreError::BreakerOpen));
    assert!(limiter.settle(&chain, &decision, 5).await.is_err());
    limiter.store().set_fault(CallFault::None);
    assert_eq!(left(&limiter, &chain).await, [9, 9]);
}

#[tokio::test]
async fn a_request_that_passed_while_the_store_was_down_gets_nothing_back() {
    let (limiter, chain) = (limiter(), chain(8, 8));
    let _charged = decided(&limiter, Ask::from(&chain)).await;
    limiter.store().set_fault(CallFault::Fail(StoreError::BreakerOpen));
    let passed = decided(&limiter, Ask::from(&chain)).await;
    limiter.store().set_fault(CallFault::None);
    assert!(passed.allowed());
    assert_eq!(settle(&limiter, &chain, &passed, 0).await, (Settled::default(), 0));
    assert_eq!(left(&limiter, &chain).await, [2, 2]);
}

#[test]
fn tokens_of_the_local_store_are_not_taken_from_the_shared_one() {
    let (chain, at) = (chain(1, 1), Micros::from_secs(1));
    let charges = chain.charges();
    let buckets: OneOrMany<_> =
        charges.iter().map(|charge| Bucket::full(charge.limit().limit(), at)).collect();
    let outcome = Outcome { allowed: true, at, buckets };
    let charged_at = |source| Decision::from_outcome(&charges, &outcome, source).charged_at();
    assert_eq!(charged_at(DecisionSource::Store), Some(at));
    assert_eq!(charged_at(DecisionSource::Local), None);
}

/// Windows of a minute.
#[derive(Debug)]
struct Minutes;

impl fmt::Display for Minutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("minute")
    }
}

impl Windows for Minutes {
    fn window_at(&self, now: Micros) -> Window {
        let start = now.get() - now.get() % 60_000_000;
        Window { start: Micros::new(start), end: Micros::new(start + 60_000_000) }
    }

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn longest(&self) -> Duration {
        self.period()
    }
}

#[tokio::test]
async fn what_was_charged_in_a_window_that_is_over_is_not_given_back_to_the_next() {
    for (passed, left_over) in [(30, [4, 4]), (61, [5, 4])] {
        let clock = FakeClock::at(Micros::from_secs(600));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = RateLimiter::builder().store(FaultyStore::new(store, |_| CallFault::None)).build();
        let limits = [
            ("minute", Limit::per_window(10, QuotaWindows::new(Minutes)).build().unwrap()),
            ("rate", Limit::per(1, Duration::from_secs(3_600)).burst(10).build().unwrap()),
        ];
        let both = Plan::chain("both", limits).unwrap();
        let charged = |tokens| {
            let mut chain = Chain::new(None);
            chain.charge(&ResolvedKey::custom("user", "ann"), &both, tokens).unwrap();
            chain
        };
        let chain = charged(4);
        let decision = decided(&limiter, Ask::from(&chain)).await;
        clock.advance(Duration::from_secs(passed));
        assert!(decided(&limiter, Ask::from(&charged(5))).await.allowed());
        limiter.settle(&chain, &decision, 1).await.unwrap();
        assert_eq!(left(&limiter, &chain).await, left_over, "after {passed} s");
    }
}
