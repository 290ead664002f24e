//! A denial is repeated without the store, and only where the store would repeat it.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use spile_core::{
    Amount, Decision, DecisionSource, FakeClock, InMemoryPlans, Limit, Plan, SpendTime, StoreError, StoreExt,
};
use spile_limiter::{RateLimiter, Wait};
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

use crate::network::{Clocks, RemoteStore, Trip, now};

const INTERVAL: Duration = Duration::from_millis(100);

fn plans() -> [Plan; 3] {
    [
        Plan::new("slow", Limit::per_second(1).burst(2)).unwrap(),
        Plan::new("fast", Limit::per_second(40).burst(4)).unwrap(),
        Plan::chain(
            "both",
            [("second", Limit::per_second(20).burst(3)), ("minute", Limit::per_minute(600).burst(30))],
        )
        .unwrap(),
    ]
}

fn instance(store: &RemoteStore, clocks: &Clocks, machine: usize) -> RateLimiter<RemoteStore> {
    RateLimiter::builder().store(store.clone()).plans(plans()).clock(clocks.of(machine)).build()
}

fn alone() -> (RateLimiter<RemoteStore>, RemoteStore, Clocks) {
    let clocks = Clocks::apart(2);
    let store = RemoteStore::new(&clocks);
    (instance(&store, &clocks, 1), store, clocks)
}

async fn ask(limiter: &RateLimiter<RemoteStore>, plan: &str, cost: u64) -> Decision {
    limiter.allow("ann", [plan], cost).await.unwrap()
}

/// A limiter whose key has just been denied a token.
async fn denied() -> (RateLimiter<RemoteStore>, RemoteStore, Clocks) {
    let (limiter, store, clocks) = alone();
    assert!(ask(&limiter, "slow", 2).await.allowed());
    assert!(!ask(&limiter, "slow", 1).await.allowed());
    (limiter, store, clocks)
}

#[tokio::test]
async fn a_denial_is_repeated_without_the_store() {
    let (limiter, store, clocks) = denied().await;
    clocks.advance(Duration::from_millis(30));
    let (asked, again) = (store.calls(), ask(&limiter, "slow", 1).await);
    assert_eq!((again.allowed(), again.source()), (false, DecisionSource::DenyCache));
    assert_eq!(again.limited_by().unwrap().as_str(), "slow");
    assert_eq!((again.remaining(), again.retry_after()), (Amount::ZERO, Duration::from_millis(970)));
    assert_eq!(again.at(), now(&clocks, 0), "times are those of the store");
    assert_eq!(store.calls(), asked);
}

#[tokio::test]
async fn a_smaller_cost_and_another_key_ask_the_store() {
    let (limiter, store, _) = alone();
    assert!(ask(&limiter, "slow", 1).await.allowed());
    assert!(!ask(&limiter, "slow", 2).await.allowed());
    assert!(ask(&limiter, "slow", 1).await.allowed());
    assert!(limiter.allow("bob", ["slow"], 2).await.unwrap().allowed());
    assert_eq!(store.calls(), 4);
}

#[tokio::test]
async fn after_the_interval_the_store_is_asked_once_and_then_not() {
    let (limiter, store, clocks) = denied().await;
    clocks.advance(INTERVAL);
    let asked = store.calls();
    for _ in 0..10 {
        assert!(!ask(&limiter, "slow", 1).await.allowed());
    }
    assert_eq!(store.calls(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_is_asked_for_is_renewed_in_the_background_by_one_look() {
    let (limiter, store, clocks) = denied().await;
    clocks.advance(INTERVAL * 9 / 10);
    let asked = store.calls();
    for _ in 0..10 {
        assert_eq!(ask(&limiter, "slow", 1).await.source(), DecisionSource::DenyCache);
    }
    tokio::time::sleep(INTERVAL / 4 + Duration::from_millis(1)).await;
    assert_eq!(store.calls(), asked + 1);
    clocks.advance(INTERVAL * 9 / 10);
    assert_eq!(ask(&limiter, "slow", 1).await.source(), DecisionSource::DenyCache);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_finds_tokens_of_another_instance_lets_the_next_question_ask() {
    let (limiter, store, clocks) = denied().await;
    let other = instance(&store, &clocks, 1);
    let _ = other.refund("ann", ["slow"], 1, SpendTime::ThisWindow).await.unwrap();
    clocks.advance(INTERVAL * 9 / 10);
    assert!(!ask(&limiter, "slow", 1).await.allowed());
    tokio::time::sleep(INTERVAL / 4 + Duration::from_millis(1)).await;
    assert!(ask(&limiter, "slow", 1).await.allowed());
}

#[tokio::test]
async fn own_refunds_and_resets_are_seen_at_once() {
    let (limiter, _, _) = denied().await;
    let _ = limiter.refund("ann", ["slow"], 1, SpendTime::ThisWindow).await.unwrap();
    assert!(ask(&limiter, "slow", 1).await.allowed());
    assert!(!ask(&limiter, "slow", 1).await.allowed());
    limiter.refund_once("ann", ["slow"], 1, SpendTime::ThisWindow, "r1").await.unwrap();
    assert!(ask(&limiter, "slow", 1).await.allowed());
    assert!(!ask(&limiter, "slow", 1).await.allowed());
    limiter.reset("ann", ["slow"]).await.unwrap();
    assert!(ask(&limiter, "slow", 2).await.allowed());
}

#[tokio::test]
async fn a_larger_plan_is_seen_at_once() {
    let clocks = Clocks::apart(2);
    let (store, registry) = (RemoteStore::new(&clocks), Arc::new(InMemoryPlans::new(plans())));
    let limiter =
        RateLimiter::builder().store(store).registry(Arc::clone(&registry)).clock(clocks.of(1)).build();
    assert!(ask(&limiter, "slow", 2).await.allowed());
    assert!(!ask(&limiter, "slow", 1).await.allowed());
    clocks.advance(Duration::from_millis(10));
    assert_eq!(ask(&limiter, "slow", 1).await.source(), DecisionSource::DenyCache);
    registry.put(&Plan::new("slow", Limit::per_second(1_000).burst(1_000)).unwrap());
    assert!(ask(&limiter, "slow", 9).await.allowed());
}

#[tokio::test]
async fn a_chain_is_denied_again_by_the_limit_with_the_longest_wait() {
    let (limiter, store, clocks) = alone();
    assert!(ask(&limiter, "both", 3).await.allowed());
    let first = ask(&limiter, "both", 2).await;
    clocks.advance(Duration::from_millis(7));
    let (asked, again) = (store.calls(), ask(&limiter, "both", 2).await);
    assert_eq!((again.source(), store.calls()), (DecisionSource::DenyCache, asked));
    assert_eq!(again.limited_by(), first.limited_by());
    assert_eq!(again.retry_after() + Duration::from_millis(7), first.retry_after());
    assert_eq!(again.limits()[1].remaining(), first.limits()[1].remaining());
}

#[tokio::test]
async fn a_slow_answer_denies_no_longer_than_the_store_would() {
    let (limiter, store, clocks) = alone();
    assert!(ask(&limiter, "fast", 4).await.allowed());
    // The store decides at once, and the answer takes 20 of the 25 milliseconds until there is a token.
    store.takes(Trip { there: Duration::ZERO, back: Duration::from_millis(20) });
    assert!(!ask(&limiter, "fast", 1).await.allowed());
    store.takes(Trip::default());
    clocks.advance(Duration::from_millis(5));
    assert!(ask(&limiter, "fast", 1).await.allowed());
}

#[tokio::test]
async fn a_clock_that_is_stepped_back_denies_no_one_by_an_old_answer() {
    let (limiter, store, clocks) = denied().await;
    clocks.of(1).step_back(Duration::from_secs(10));
    let asked = store.calls();
    assert!(!ask(&limiter, "slow", 1).await.allowed());
    assert_eq!(store.calls(), asked + 1);
}

/// A peek does not rebase a bucket that lies ahead of the store's clock, and would report it as empty time and again.
#[tokio::test]
async fn a_denied_peek_makes_no_note_and_leaves_the_one_there_is() {
    let (limiter, _, _) = alone();
    let peeked = || async { limiter.peek("ann", ["slow"], 1).await.unwrap().allowed() };
    assert!(ask(&limiter, "slow", 2).await.allowed());
    assert!(!peeked().await);
    assert_eq!(ask(&limiter, "slow", 1).await.source(), DecisionSource::Store);
    assert!(!peeked().await);
    assert_eq!(ask(&limiter, "slow", 1).await.source(), DecisionSource::DenyCache);
}

#[tokio::test]
async fn a_peek_removes_notes_from_before_the_clock_of_the_store_was_stepped_back() {
    let (limiter, _, clocks) = denied().await;
    clocks.of(0).step_back(Duration::from_secs(5));
    assert!(!limiter.peek("ann", ["slow"], 1).await.unwrap().allowed());
    assert_eq!(ask(&limiter, "slow", 1).await.source(), DecisionSource::Store);
}

#[tokio::test]
async fn it_can_be_switched_off_and_is_off_for_a_store_that_answers_at_once() {
    let clocks = Clocks::apart(2);
    let store = RemoteStore::new(&clocks);
    let builder = || RateLimiter::builder().plans(plans()).clock(clocks.of(1));
    let exact = builder().store(store.clone()).deny_cache(Duration::ZERO).build();
    assert!(ask(&exact, "slow", 2).await.allowed());
    for _ in 0..3 {
        assert_eq!(ask(&exact, "slow", 1).await.source(), DecisionSource::Store);
    }
    assert_eq!(store.calls(), 4);
    let embedded = builder().store(spile_memory::MemoryStore::builder().clock(clocks.of(1)).build()).build();
    assert!(embedded.try_allow("ann", ["slow"], 2).unwrap().allowed());
    for _ in 0..3 {
        assert_eq!(embedded.allow("ann", ["slow"], 1).await.unwrap().source(), DecisionSource::Store);
    }
}

#[tokio::test]
async fn a_flood_of_denied_keys_is_answered_and_the_memory_is_bounded() {
    let (limiter, store, _) = alone();
    for round in 0..2 {
        for key in 0..40_000_u32 {
            let key = format!("key-{key}");
            assert_eq!(limiter.allow(&key, ["slow"], 2).await.unwrap().allowed(), round == 0);
        }
    }
    let asked = store.calls();
    for key in 39_000..40_000_u32 {
        assert!(!limiter.allow(&format!("key-{key}"), ["slow"], 2).await.unwrap().allowed());
    }
    assert!(store.calls() - asked < 500, "the newest are remembered");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_as_long_as_it_is_told_is_let_in() {
    let clocks = Clocks::apart(2);
    let store = RemoteStore::new(&clocks);
    let limiter = instance(&store, &clocks, 1);
    assert!(ask(&limiter, "fast", 4).await.allowed());
    let waiting = limiter.until_ready("ann", ["fast"], 1, Wait::forever());
    let moving = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clocks.advance(Duration::from_millis(1));
        }
    };
    let decision = tokio::select! { decision = waiting => decision.unwrap(), () = moving => unreachable!() };
    assert!(decision.allowed());
}

/// What one of three instances does.
#[derive(Clone, Debug)]
enum Act {
    Allow { plan: usize, cost: u64 },
    Refund { plan: usize, cost: u64 },
    Reset { plan: usize },
    Pause { us: u64 },
}

fn acts() -> impl Strategy<Value = Vec<(usize, Act, u64, u64)>> {
    let act = prop_oneof![
        12 => (0..3_usize, 1..4_u64).prop_map(|(plan, cost)| Act::Allow { plan, cost }),
        1 => (0..3_usize, 1..3_u64).prop_map(|(plan, cost)| Act::Refund { plan, cost }),
        1 => (0..3_usize).prop_map(|plan| Act::Reset { plan }),
        4 => (0..40_000_u64).prop_map(|us| Act::Pause { us }),
    ];
    prop::collection::vec((1..4_usize, act, 0..3_000_u64, 0..3_000_u64), 1..120)
}

const PLANS: [&str; 3] = ["slow", "fast", "both"];

async fn play(acts: Vec<(usize, Act, u64, u64)>) -> Result<usize, TestCaseError> {
    let clocks = Clocks::apart(4);
    let store = RemoteStore::new(&clocks);
    let instances: Vec<_> = (0..4).map(|machine| instance(&store, &clocks, machine)).collect();
    let mut changed = [[None; 4]; 3];
    let mut repeated = 0;
    for (machine, act, there, back) in acts {
        store.takes(Trip { there: Duration::from_micros(there), back: Duration::from_micros(back) });
        let limiter = &instances[machine];
        match act {
            Act::Pause { us } => clocks.advance(Duration::from_micros(us)),
            Act::Refund { plan, cost } => {
                changed[plan][machine] = Some(now(&clocks, 0));
                let _ =
                    limiter.refund("ann", [PLANS[plan]], cost.min(2), SpendTime::ThisWindow).await.unwrap();
            }
            Act::Reset { plan } => {
                changed[plan][machine] = Some(now(&clocks, 0));
                limiter.reset("ann", [PLANS[plan]]).await.unwrap();
            }
            Act::Allow { plan, cost } => {
                let cost = if plan == 0 { cost.min(2) } else { cost };
                let at = now(&clocks, 0);
                let decision = limiter.allow("ann", [PLANS[plan]], cost).await.unwrap();
                if decision.source() != DecisionSource::DenyCache {
                    continue;
                }
                repeated += 1;
                let elsewhere = changed[plan].iter().enumerate().filter(|&(other, _)| other != machine);
                let recent = elsewhere.filter_map(|(_, &since)| since).any(|since| {
                    let trip = Duration::from_millis(6);
                    at.since_us(since) < u64::try_from((INTERVAL + trip).as_micros()).unwrap()
                });
                if recent {
                    continue;
                }
                let charges = limiter.charges("ann", [PLANS[plan]], cost).unwrap();
                let model = store.model.peek(&charges).await.unwrap();
                prop_assert!(!model.allowed, "the store would have let it in");
                let wait = Decision::from_outcome(&charges, &model, DecisionSource::Store).retry_after();
                // An answer is on its way back for three milliseconds at most.
                prop_assert!(decision.retry_after() <= wait + Duration::from_millis(3));
            }
        }
    }
    Ok(repeated)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_instance_denies_whom_the_store_would_let_in(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(play(acts))?;
    }
}

#[test]
fn the_property_is_about_something() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let repeated: usize = (0..50)
        .map(|_| runtime.block_on(play(acts().new_tree(&mut runner).unwrap().current())).unwrap())
        .sum();
    assert!(repeated > 100, "only {repeated} denials were repeated");
}

/// Takes tokens of `ann` in one of the ways that there are.
async fn take(how: &str, limiter: &RateLimiter<RemoteStore>, tokens: u64) {
    match how {
        "allow" => assert!(ask(limiter, "wide", tokens).await.allowed()),
        "chain" => assert!(limiter.allow("ann", ["wide", "slow"], tokens.min(1)).await.unwrap().allowed()),
        "spend_up_to" => {
            assert!(limiter.spend_up_to("ann", ["wide"], tokens).await.unwrap().decision.allowed());
        }
        "charge" => drop(limiter.charge("ann", ["wide"], tokens).await.unwrap()),
        "reserve" => {
            let reserved = limiter.reserve("ann", "wide", tokens, Duration::from_secs(60)).await.unwrap();
            assert!(reserved.decision().allowed());
        }
        "settle" => {
            let mut reserved = limiter.reserve("bob", "wide", 1, Duration::from_secs(60)).await.unwrap();
            drop(reserved.settle(1).await.unwrap());
            let mut reserved = limiter.reserve("ann", "wide", 1, Duration::from_secs(60)).await.unwrap();
            // Denied once more at the reserved level, and charged beyond it.
            assert!(!ask(limiter, "wide", 90).await.allowed());
            drop(reserved.settle(tokens).await.unwrap());
        }
        "permit" => drop(limiter.acquire("ann", ["wide", "one"]).await.unwrap()),
        other => unreachable!("{other}"),
    }
}

#[tokio::test]
async fn a_denied_caller_who_waits_retry_after_is_let_in_whatever_was_taken_since() {
    for how in ["allow", "chain", "spend_up_to", "charge", "reserve", "settle", "permit"] {
        let clocks = Clocks::apart(2);
        let store = RemoteStore::new(&clocks);
        let wide = Plan::new("wide", Limit::per_second(100)).unwrap();
        let one = Plan::new("one", Limit::concurrent(1)).unwrap();
        let builder = RateLimiter::builder().store(store.clone()).clock(clocks.of(1));
        let limiter = builder.plans(plans().into_iter().chain([wide, one])).build();
        assert!(ask(&limiter, "wide", 50).await.allowed());
        assert!(!ask(&limiter, "wide", 90).await.allowed());
        take(how, &limiter, 45).await;
        let denied = ask(&limiter, "wide", 90).await;
        let charges = limiter.charges("ann", ["wide"], 90).unwrap();
        let shown = store.model.peek(&charges).await.unwrap();
        let truth = Decision::from_outcome(&charges, &shown, DecisionSource::Store).retry_after();
        assert_eq!((denied.allowed(), denied.retry_after()), (false, truth), "{how}");
        // The same by what the deny cache has of it now.
        let again = ask(&limiter, "wide", 90).await;
        assert_eq!((again.source(), again.retry_after()), (DecisionSource::DenyCache, truth), "{how}");
        clocks.advance(truth);
        assert!(ask(&limiter, "wide", 90).await.allowed(), "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_spend_whose_answer_is_lost_or_not_waited_for_leaves_no_wait_that_is_too_short() {
    let clock = FakeClock::default();
    let faults = [
        CallFault::LoseAnswer(StoreError::TimedOut(INTERVAL)),
        CallFault::LoseAnswer(StoreError::Unavailable { message: "reset".into(), may_have_run: true }),
    ];
    for fault in faults {
        let store = FaultyStore::new(ModelStore::new(clock.clone()), |_| CallFault::None);
        let wide = Plan::new("wide", Limit::per_second(100)).unwrap();
        let limiter = RateLimiter::builder().store(store).plans([wide]).clock(clock.clone()).build();
        assert!(limiter.allow("ann", "wide", 50).await.unwrap().allowed());
        assert!(!limiter.allow("ann", "wide", 90).await.unwrap().allowed());
        limiter.store().set_fault(fault);
        assert!(limiter.allow("ann", "wide", 45).await.unwrap().degraded());
        limiter.store().set_fault(CallFault::None);
        let denied = limiter.allow("ann", "wide", 90).await.unwrap();
        assert_eq!((denied.allowed(), denied.retry_after()), (false, Duration::from_millis(850)));
        limiter.reset("ann", "wide").await.unwrap();
    }
    // A caller that has gone: the call is under way, and may still run.
    let store = FaultyStore::new(ModelStore::new(clock.clone()), |_| CallFault::None);
    let wide = Plan::new("wide", Limit::per_second(100)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([wide]).clock(clock.clone()).build();
    assert!(limiter.allow("ann", "wide", 50).await.unwrap().allowed());
    assert!(!limiter.allow("ann", "wide", 90).await.unwrap().allowed());
    limiter.store().set_fault(CallFault::Hang);
    let gone = tokio::time::timeout(Duration::from_millis(1), limiter.allow("ann", "wide", 45)).await;
    assert!(gone.is_err());
    limiter.store().set_fault(CallFault::None);
    assert_eq!(limiter.allow("ann", "wide", 90).await.unwrap().source(), DecisionSource::Store);
}

#[tokio::test]
async fn a_note_outlives_calls_that_have_changed_nothing() {
    let clock = FakeClock::default();
    let store = FaultyStore::new(ModelStore::new(clock.clone()), |_| CallFault::None);
    let wide = Plan::new("wide", Limit::per_second(100)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([wide]).clock(clock).build();
    assert!(limiter.allow("ann", "wide", 50).await.unwrap().allowed());
    assert!(!limiter.allow("ann", "wide", 90).await.unwrap().allowed());
    limiter.store().set_fault(CallFault::LoseAnswer(StoreError::TimedOut(INTERVAL)));
    assert!(limiter.peek("ann", "wide", 1).await.unwrap().degraded());
    limiter.store().set_fault(CallFault::Fail(StoreError::BreakerOpen));
    assert!(limiter.allow("ann", "wide", 45).await.unwrap().degraded());
    limiter.reset("ann", "wide").await.unwrap_err();
    limiter.store().set_fault(CallFault::None);
    assert_eq!(limiter.allow("ann", "wide", 90).await.unwrap().source(), DecisionSource::DenyCache);
}

#[tokio::test]
async fn a_portion_that_a_lease_takes_leaves_no_wait_that_is_too_short() {
    let clocks = Clocks::apart(2);
    let store = RemoteStore::new(&clocks);
    let leased = Plan::new("leased", Limit::per_second(10).burst(1_000).lease(INTERVAL)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([leased]).clock(clocks.of(1)).build();
    assert!(ask(&limiter, "leased", 100).await.allowed());
    while limiter.lease_stats().portions == 0 {
        assert!(!ask(&limiter, "leased", 1_000).await.allowed());
        assert!(ask(&limiter, "leased", 1).await.allowed());
        tokio::task::yield_now().await;
    }
    let denied = ask(&limiter, "leased", 1_000).await;
    limiter.return_leases().await;
    assert!(!denied.allowed());
    clocks.advance(denied.retry_after());
    assert!(ask(&limiter, "leased", 1_000).await.allowed());
}

/// What the only instance does, and by how much.
fn alone_acts() -> impl Strategy<Value = Vec<(u8, u64, u64, u64)>> {
    prop::collection::vec((0..10_u8, 1..60_u64, 0..3_000_u64, 0..3_000_u64), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_cached_denial_reports_a_shorter_wait_than_the_store_would(acts in alone_acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let clocks = Clocks::apart(2);
            let store = RemoteStore::new(&clocks);
            let wide = Plan::new("wide", Limit::per_second(100)).unwrap();
            let limiter = RateLimiter::builder().store(store.clone()).plans([wide]).clock(clocks.of(1)).build();
            for (act, tokens, there, back) in acts {
                store.takes(Trip { there: Duration::from_micros(there), back: Duration::from_micros(back) });
                match act {
                    0 => drop(limiter.refund("ann", ["wide"], tokens, SpendTime::ThisWindow).await.unwrap()),
                    1 => drop(limiter.charge("ann", ["wide"], tokens).await.unwrap()),
                    2 => drop(limiter.spend_up_to("ann", ["wide"], tokens).await.unwrap()),
                    3 => drop(limiter.peek("ann", ["wide"], tokens).await.unwrap()),
                    4 | 5 => clocks.advance(Duration::from_millis(tokens / 4)),
                    _ => {
                        let decision = limiter.allow("ann", ["wide"], tokens).await.unwrap();
                        if decision.source() == DecisionSource::DenyCache {
                            let charges = limiter.charges("ann", ["wide"], tokens).unwrap();
                            let shown = store.model.peek(&charges).await.unwrap();
                            let truth = Decision::from_outcome(&charges, &shown, DecisionSource::Store);
                            prop_assert!(decision.retry_after() >= truth.retry_after());
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}
