//! A hash with a higher version was written by a newer instance: nothing of it is lost, and the decision follows the failure policy.

use std::time::Duration;

use futures_util::future::join_all;
use spile_calendar::CalendarLimit;
use spile_core::{
    Charge, Charges, Cost, FailurePolicy, FailureReason, Key, Limit, LimitName, Micros, NamedLimit, PermitId,
    PermitStep, Plan, RefundId, ReservationId, SpendTime, StoreError, StoreExt,
};
use spile_limiter::RateLimiter;
use spile_redis::RedisStore;
use spile_testkit::redis::{Flavour, RedisReply, RedisServer};

use crate::common::{charge, charges, patient};

const LIMIT: &str = "10, 1/h";
const HASH: &str = "spile:{ann}:limit";

fn store(server: &RedisServer) -> RedisStore {
    patient(&server.url()).prefix("spile").connections(1).build().expect("a sound URL")
}

/// A format that no version knows.
fn newer_instance_writes(server: &RedisServer) {
    server.command(&["FLUSHALL"]);
    server.command(&["HSET", HASH, "v", "2", "t", "3000000", "ts", "1", "level", "0.3"]);
    server.command(&["PEXPIRE", HASH, "7200000"]);
}

/// All that the server keeps.
fn stored(server: &RedisServer) -> Vec<(String, Vec<String>)> {
    let texts = |command: &[&str]| -> Vec<String> {
        server.command(command).list().iter().map(|text| RedisReply::text(text).to_owned()).collect()
    };
    let keys = texts(&["KEYS", "*"]);
    keys.into_iter().map(|key| (key.clone(), texts(&["HGETALL", &key]))).collect()
}

pub(super) fn quota_charge() -> Charge<'static> {
    let quota = Limit::quota(10).per_day().build().unwrap();
    let quota = NamedLimit::new(LimitName::new("limit").unwrap(), quota);
    Charge::new(Key::new("ann").unwrap(), quota, Cost::ONE).unwrap()
}

pub(super) fn place() -> Charge<'static> {
    let jobs = Limit::concurrent(1).hold(Duration::from_secs(30)).build().unwrap();
    let jobs = NamedLimit::new(LimitName::new("jobs").unwrap(), jobs);
    Charge::new(Key::new("ann").unwrap(), jobs, Cost::ONE).unwrap()
}

/// Every operation, on chains of that bucket and another.
pub(super) async fn ask_all(store: &RedisStore) -> Vec<(&'static str, Result<(), StoreError>)> {
    let chain = |cost| {
        let both = [charge("ann", "limit", LIMIT, cost), charge("ann", "other", LIMIT, cost)];
        Charges::new(both).unwrap()
    };
    let (one, nothing) = (chain(1), chain(0));
    let with_place = Charges::new([charge("ann", "limit", LIMIT, 1), place()]).unwrap();
    let (id, refund_id) =
        (PermitId::new(Micros::from_secs(1), Duration::ZERO, 1, "").unwrap(), RefundId::new("once").unwrap());
    let reservation = ReservationId::new(7, Duration::from_secs(60)).unwrap();
    let costs = [Cost::ONE; 2];
    let mut answers = vec![
        ("spend", store.spend(&one).await.map(drop)),
        ("spend nothing", store.spend(&nothing).await.map(drop)),
        ("spend of a quota", store.spend(&quota_charge().into()).await.map(drop)),
        ("peek", store.peek(&one).await.map(drop)),
        ("spend up to", store.spend_up_to(&one).await.map(drop)),
        ("charge", store.charge(&one).await.map(drop)),
        ("refund", store.refund(&one, SpendTime::ThisWindow).await.map(drop)),
        ("refund once", store.refund_once(&one, SpendTime::ThisWindow, refund_id).await.map(drop)),
        ("reserve", store.reserve(&one, reservation).await.map(drop)),
        ("settle", store.settle(&one, reservation, &costs).await.map(drop)),
        ("reset", store.reset(&one).await),
    ];
    let steps = [
        PermitStep::Acquire,
        PermitStep::Retake,
        PermitStep::Renew,
        PermitStep::Release(SpendTime::ThisWindow),
    ];
    for (name, step) in ["acquire", "retake", "renew", "release"].into_iter().zip(steps) {
        answers.push((name, store.permit(&with_place, &id, step).await.map(drop)));
    }
    answers
}

#[tokio::test]
async fn no_operation_changes_what_a_newer_instance_wrote() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let store = store(&server);
        newer_instance_writes(&server);
        let before = stored(&server);
        for (operation, answer) in ask_all(&store).await {
            let error = answer.expect_err(operation);
            assert!(matches!(error, StoreError::BadTypes(_)), "{flavour:?} {operation}: {error}");
            assert!(error.to_string().contains("newer version"), "{flavour:?} {operation}: {error}");
            assert!(!error.may_have_run(), "{flavour:?} {operation}");
            assert_eq!(stored(&server), before, "{flavour:?} {operation}");
        }
        let ttl = server.command(&["PTTL", HASH]).int();
        assert!((7_000_000..=7_200_000).contains(&ttl), "{flavour:?} {ttl}");
        assert_eq!(store.stats().repairs, 0, "{flavour:?}");
    }
}

#[tokio::test]
async fn the_other_decisions_of_its_call_are_made() {
    let server = RedisServer::start();
    let store = store(&server);
    newer_instance_writes(&server);
    let (ahead, newer, other) =
        (charges("ahead", LIMIT, 1), charges("ann", LIMIT, 1), charges("bob", LIMIT, 1));
    store.spend(&ahead).await.unwrap();
    let calls = store.stats().calls;
    let asked = [&other, &newer, &other, &newer, &other];
    // Questions that come while the first call is in flight share the next.
    let (_, answers) = tokio::join!(store.spend(&ahead), join_all(asked.map(|charges| store.spend(charges))));
    assert!(store.stats().calls - calls <= 2, "they share a call");
    let allowed: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().map(|it| it.allowed)).collect();
    assert_eq!(allowed, [Some(true), None, Some(true), None, Some(true)]);
    assert_eq!(store.peek(&other).await.unwrap().buckets[0].amount().whole_tokens(), 7);
}

#[tokio::test]
async fn the_decision_follows_the_failure_policy() {
    let server = RedisServer::start();
    newer_instance_writes(&server);
    for (policy, allowed) in [(FailurePolicy::Allow, true), (FailurePolicy::Deny, false)] {
        let plan = Plan::new("limit", LIMIT.parse::<Limit>().unwrap()).unwrap();
        let limiter = RateLimiter::builder().store(store(&server)).plans([plan]).on_failure(policy).build();
        let decision = limiter.allow("ann", ["limit"], 1).await.unwrap();
        assert_eq!(decision.allowed(), allowed, "{policy:?}");
        assert_eq!(decision.failure(), Some(FailureReason::BadTypes), "{policy:?}");
    }
}
