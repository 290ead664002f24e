//! Reservations: charged at once, settled once, cancelled if told to.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::sync::Arc;
use std::time::Duration;

use spile_core::{Amount, FailurePolicy, FakeClock, Limit, Plan, Reason, Store, StoreError};
use spile_limiter::{AcquireError, LimiterError, RateLimiter, SettleError};
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

const TTL: Duration = Duration::from_secs(60);

fn limiter<S: Store + 'static>(store: S) -> RateLimiter<S> {
    let plans = [
        Plan::new("model", Limit::per_hour(1).burst(100).debt(50)).unwrap(),
        Plan::new("all", Limit::per_hour(1).burst(200)).unwrap(),
    ];
    RateLimiter::builder().store(store).plans(plans).build()
}

fn model() -> ModelStore<FakeClock> {
    ModelStore::new(FakeClock::default())
}

fn store_error(why: SettleError) -> StoreError {
    match why {
        SettleError::Store(why) => why,
        why => panic!("{why}"),
    }
}

async fn left<S: Store>(limiter: &RateLimiter<S>, plan: &str) -> Amount {
    limiter.peek("ann", plan, 0).await.unwrap().remaining()
}

#[tokio::test]
async fn what_was_reserved_and_not_used_comes_back_once() {
    let limiter = limiter(model());
    let mut reservation = limiter.reserve("ann", ["model", "all"], 60, TTL).await.unwrap();
    assert!(reservation.decision().allowed());
    assert_eq!([left(&limiter, "model").await, left(&limiter, "all").await], [40, 140]);
    assert_eq!(
        reservation.decision().limits().len(),
        2,
        "what keeps the reservation is no limit of the caller's"
    );
    let settled = reservation.settle(10).await.unwrap();
    assert_eq!((settled.already, settled.uncovered), (false, Amount::ZERO));
    assert_eq!(settled.decision.unwrap().limits().len(), 2);
    assert_eq!([left(&limiter, "model").await, left(&limiter, "all").await], [90, 190]);
    assert!(reservation.settle(0).await.unwrap().already);
    assert_eq!(left(&limiter, "model").await, 90);
}

#[tokio::test]
async fn what_was_used_beyond_the_reservation_is_charged_into_debt() {
    let limiter = limiter(model());
    let mut reservation = limiter.reserve("ann", "model", 60, TTL).await.unwrap();
    let settled = reservation.settle(170).await.unwrap();
    assert_eq!((settled.already, settled.uncovered), (false, Amount::from(20)));
    assert!(!limiter.peek("ann", "model", 0).await.unwrap().allowed());
}

#[tokio::test]
async fn a_denied_reservation_is_an_error_that_holds_nothing() {
    let limiter = limiter(model());
    let mut reservation = limiter.reserve("ann", "model", 60, TTL).await.unwrap();
    let denied = limiter.reserve("ann", "model", 60, TTL).await.map(drop).unwrap_err();
    let decision = denied.decision().unwrap();
    assert_eq!((decision.allowed(), decision.reason()), (false, Reason::Limited));
    assert_eq!(denied.to_string(), format!("denied, retry after {:?}", decision.retry_after()));
    assert_eq!(left(&limiter, "model").await, 40);
    assert!(!reservation.settle(60).await.unwrap().already);
}

#[tokio::test]
async fn a_reservation_that_the_failure_policy_refuses_is_an_error_too() {
    let plans = || [Plan::new("model", Limit::per_hour(1).burst(100)).unwrap()];
    let asked = async |policy| {
        let builder = RateLimiter::builder().store(FaultyStore::down()).plans(plans());
        builder.on_failure(policy).build().reserve("ann", "model", 60, TTL).await.map(drop)
    };
    let refused = asked(FailurePolicy::Deny).await.unwrap_err();
    assert_eq!(refused.decision().map(spile_core::Decision::reason), Some(Reason::FailClosed));
    assert!(asked(FailurePolicy::Allow).await.is_ok());
    assert!(asked(FailurePolicy::Local).await.is_ok());
}

#[tokio::test]
async fn a_reservation_whose_settling_is_unknown_is_settled_by_asking_again() {
    let lost = || CallFault::LoseAnswer(StoreError::TimedOut(TTL));
    let store = FaultyStore::new(model(), move |call| if call == 1 { lost() } else { CallFault::None });
    let limiter = limiter(store);
    let mut reservation = limiter.reserve("ann", "model", 60, TTL).await.unwrap();
    assert!(store_error(reservation.settle(10).await.unwrap_err()).may_have_run());
    assert!(reservation.settle(10).await.unwrap().already, "the first call had settled it");
    assert_eq!(left(&limiter, "model").await, 90);

    let refused = || CallFault::Fail(StoreError::BreakerOpen);
    let store = FaultyStore::new(model(), move |call| if call == 1 { refused() } else { CallFault::None });
    let limiter = self::limiter(store);
    let mut reservation = limiter.reserve("ann", "model", 60, TTL).await.unwrap();
    assert!(!store_error(reservation.settle(10).await.unwrap_err()).may_have_run());
    assert!(!reservation.settle(10).await.unwrap().already);
    assert_eq!(left(&limiter, "model").await, 90);
}

#[tokio::test]
async fn a_reservation_that_is_dropped_stays_charged_unless_it_is_to_be_cancelled() {
    let limiter = limiter(Arc::new(model()));
    drop(limiter.reserve("ann", "model", 30, TTL).await.unwrap());
    let reservation = limiter.reserve("ann", "model", 30, TTL).await.unwrap().cancel_on_drop();
    assert_eq!(left(&limiter, "model").await, 40);
    drop(reservation);
    // The task that cancels it is the only other one on this runtime.
    tokio::task::yield_now().await;
    assert_eq!(left(&limiter, "model").await, 70);
    let mut settled = limiter.reserve("ann", "model", 30, TTL).await.unwrap().cancel_on_drop();
    settled.settle(20).await.unwrap();
    drop(settled);
    tokio::task::yield_now().await;
    assert_eq!(left(&limiter, "model").await, 50, "what is settled is not cancelled");
}

#[tokio::test]
async fn a_reservation_that_cannot_be_is_an_error_and_costs_nothing() {
    let limiter = limiter(model());
    let why = limiter.reserve("ann", "model", 1, Duration::from_millis(999)).await.unwrap_err();
    assert!(matches!(why, AcquireError::Asked(LimiterError::ReservationTtl(_))), "{why}");
    let asked = async |key: &str, plan: &str, tokens: u64| match limiter.reserve(key, plan, tokens, TTL).await
    {
        Err(AcquireError::Asked(why)) => why,
        answer => panic!("{answer:?}"),
    };
    assert!(matches!(asked("ann", "nope", 1).await, LimiterError::UnknownPlan(_)));
    assert!(matches!(asked("ann", "model", 101).await, LimiterError::Charge(_)));
    assert!(matches!(asked("", "model", 1).await, LimiterError::Key(_)));
    assert_eq!(left(&limiter, "model").await, 100);
}
