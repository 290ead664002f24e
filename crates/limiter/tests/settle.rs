//! Settling asks the store for what has to change, and for no more.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use spile_core::{
    Bucket, Charges, Decision, DecisionSource, FakeClock, Limit, Micros, OneOrMany, Outcome, PartialOutcome,
    Plan, RefundId, RefundOutcome, Store, StoreError,
};
use spile_limiter::{Ask, RateLimiter, Settled, is_taken};
use spile_memory::MemoryStore;
use spile_policy::{Chain, ResolvedKey};

/// A store that counts how often it is asked, and can be down.
struct Counted {
    store: MemoryStore<FakeClock>,
    asked: AtomicU32,
    down: AtomicBool,
}

impl Counted {
    fn ask(&self) -> Result<&MemoryStore<FakeClock>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) { Err(StoreError::BreakerOpen) } else { Ok(&self.store) }
    }
}

impl Store for Counted {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.ask()?.spend(charges).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.ask()?.peek(charges).await
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        self.ask()?.spend_up_to(charges).await
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.ask()?.refund(charges).await
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        self.ask()?.refund_once(charges, id).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.ask()?.reset(charges).await
    }
}

fn limiter() -> RateLimiter<Counted> {
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let store = Counted { store, asked: AtomicU32::new(0), down: AtomicBool::new(false) };
    RateLimiter::builder().store(store).build()
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
    limiter: &RateLimiter<Counted>,
    chain: &Chain,
    decision: &Decision,
    tokens: u64,
) -> (Settled, u32) {
    let before = limiter.store().asked.load(Ordering::Relaxed);
    let settled = limiter.settle(chain, decision, tokens).await.unwrap();
    (settled, limiter.store().asked.load(Ordering::Relaxed) - before)
}

async fn left(limiter: &RateLimiter<Counted>, chain: &Chain) -> Vec<u64> {
    let looked = limiter.peek_charges(chain.charges_at(|_| 0)).await;
    looked.limits().iter().map(spile_core::LimitStatus::remaining).collect()
}

#[tokio::test]
async fn a_request_that_cost_what_it_was_charged_does_not_ask_the_store() {
    let (limiter, chain) = (limiter(), chain(8, 8));
    let decision = limiter.allow_charges(Ask::from(&chain)).await;
    assert_eq!(settle(&limiter, &chain, &decision, 8).await, (Settled::default(), 0));
    assert_eq!(left(&limiter, &chain).await, [2, 2]);
}

#[tokio::test]
async fn less_than_was_charged_is_given_back_in_one_call() {
    let (limiter, chain) = (limiter(), chain(8, 8));
    let decision = limiter.allow_charges(Ask::from(&chain)).await;
    assert_eq!(settle(&limiter, &chain, &decision, 3).await.1, 1);
    assert_eq!(left(&limiter, &chain).await, [7, 7]);
}

#[tokio::test]
async fn a_key_that_paid_the_right_cost_is_left_alone_while_another_pays_more() {
    let (limiter, chain) = (limiter(), chain(8, 1));
    let decision = limiter.allow_charges(Ask::from(&chain)).await;
    assert_eq!(settle(&limiter, &chain, &decision, 8).await.1, 1);
    assert_eq!(left(&limiter, &chain).await, [2, 2]);
}

#[tokio::test]
async fn a_denied_request_gets_nothing_back() {
    let (limiter, chain) = (limiter(), chain(8, 1));
    let _allowed = limiter.allow_charges(Ask::from(&chain)).await;
    let denied = limiter.allow_charges(Ask::from(&chain)).await;
    assert!(!denied.allowed());
    assert_eq!(settle(&limiter, &chain, &denied, 0).await, (Settled::default(), 0));
    assert_eq!(left(&limiter, &chain).await, [2, 9]);
    let (settled, asked) = settle(&limiter, &chain, &denied, 3).await;
    assert_eq!((settled.uncovered, asked), (0, 1), "the team pays two more");
    assert_eq!(left(&limiter, &chain).await, [2, 7]);
}

#[tokio::test]
async fn how_limits_stand_is_not_told_by_a_store_that_is_down() {
    let (limiter, chain) = (limiter(), chain(1, 1));
    let decision = limiter.allow_charges(Ask::from(&chain)).await;
    limiter.store().down.store(true, Ordering::Relaxed);
    assert_eq!(settle(&limiter, &chain, &decision, 5).await.0.decision, None);
}

#[tokio::test]
async fn a_request_that_passed_while_the_store_was_down_gets_nothing_back() {
    let (limiter, chain) = (limiter(), chain(8, 8));
    let _charged = limiter.allow_charges(Ask::from(&chain)).await;
    limiter.store().down.store(true, Ordering::Relaxed);
    let passed = limiter.allow_charges(Ask::from(&chain)).await;
    limiter.store().down.store(false, Ordering::Relaxed);
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
    let taken = |source| is_taken(&Decision::from_outcome(&charges, &outcome, source));
    assert!(taken(DecisionSource::Store));
    assert!(!taken(DecisionSource::Local));
}
