//! Promises about reservations: charged at once, settled once, by one amount.

use std::time::Duration;

use spile_calendar::CalendarLimit;
use spile_core::{Limit, ReservationId, Store, StoreExt, Verdict};

use super::subject::built;
use super::{ChargeSpec, StoreUnderTest};

const TTL: Duration = Duration::from_secs(60);

fn id(number: u128) -> ReservationId {
    ReservationId::new(number, TTL).expect("a minute is within bounds")
}

fn long(number: u128) -> ReservationId {
    ReservationId::new(number, Duration::from_secs(600)).expect("ten minutes are within bounds")
}

/// Unused tokens come back, once, and every later answer reports the amount that it was settled at.
pub async fn a_reservation_is_charged_at_once_and_settled_once(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_day(1).burst(10));
    let line = [("ann", "limit", limit, 8)];
    assert!(subject.reserve(&line, id(7)).await);
    assert_eq!(subject.left("ann", limit).await, 2);
    assert!(!subject.reserve(&line, id(8)).await, "the rest does not cover another one");
    let denied = subject.settle(&line, id(8), &[0]).await;
    assert_eq!(denied.verdict, Verdict::Unknown, "a denied question has reserved nothing");
    assert_eq!(subject.left("ann", limit).await, 2);
    let settled = subject.settle(&line, id(7), &[3]).await;
    assert_eq!((settled.verdict, settled.settled[0], settled.uncovered), (Verdict::Done, 3.into(), 0.into()));
    assert_eq!(subject.left("ann", limit).await, 7);
    for cost in [0, 3, 10] {
        let again = subject.settle(&line, id(7), &[cost]).await;
        assert_eq!((again.verdict, again.settled[0]), (Verdict::Before, 3.into()));
        assert_eq!(subject.left("ann", limit).await, 7, "it is settled once");
    }
    assert!(!subject.reserve(&[("ann", "limit", limit, 1)], id(7)).await, "an id is used once");
}

/// A caller that gives up pays nothing.
pub async fn a_reservation_that_is_settled_at_nothing_is_given_back(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_day(1).burst(10));
    let line = [("ann", "limit", limit, 10)];
    assert!(subject.reserve(&line, id(7)).await);
    assert_eq!(subject.settle(&line, id(7), &[0]).await.verdict, Verdict::Done);
    assert_eq!(subject.left("ann", limit).await, 10);
    let again = subject.settle(&line, id(7), &[4]).await;
    assert_eq!((again.verdict, again.settled[0]), (Verdict::Before, 0.into()));
}

/// All that was used is charged, even if less was reserved.
pub async fn a_reservation_that_cost_more_takes_the_bucket_into_debt(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(10).debt(5));
    let line = [("ann", "limit", limit, 6)];
    assert!(subject.reserve(&line, id(7)).await);
    assert_eq!(subject.settle(&line, id(7), &[12]).await.uncovered, 0);
    assert_eq!(subject.owed("ann", limit).await, 2);
    subject.wait(Duration::from_secs(3 * 3_600));
    let line = [("ann", "limit", limit, 1)];
    assert!(subject.reserve(&line, id(8)).await);
    assert_eq!(subject.settle(&line, id(8), &[9]).await.uncovered, 3, "beyond the debt");
    assert_eq!(subject.owed("ann", limit).await, 5);
}

/// A reservation that is not settled in time stays charged, and the store forgets it an hour later.
pub async fn an_expired_reservation_stays_charged(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per(1, Duration::from_secs(365 * 86_400)).burst(10));
    let line = [("ann", "limit", limit, 3)];
    let just_before = Duration::from_micros(59_999_999);
    let cases = [
        (7, just_before, Verdict::Done),
        (8, TTL, Verdict::Expired),
        (9, TTL + Duration::from_secs(3_600), Verdict::Unknown),
    ];
    for (number, waits, verdict) in cases {
        assert!(subject.reserve(&line, id(number)).await);
        subject.wait(waits);
        assert_eq!(subject.settle(&line, id(number), &[0]).await.verdict, verdict, "after {waits:?}");
    }
    assert_eq!(subject.left("ann", limit).await, 4);
}

/// Each limit of a chain, of every key, is settled in the same step, each at a separate amount.
pub async fn a_reservation_of_a_chain_is_settled_in_each_limit(subject: StoreUnderTest<impl Store>) {
    let (wide, narrow) = (built(Limit::per_day(1).burst(100)), built(Limit::per_day(1).burst(20)));
    let chain: [ChargeSpec<'_>; 3] =
        [("ann", "p/wide", wide, 10), ("ann", "p/narrow", narrow, 4), ("everybody", "all", wide, 7)];
    let left = async || {
        let stands = subject.peek_chain(&chain.map(|(key, name, limit, _)| (key, name, limit, 0))).await;
        stands.limits().iter().map(spile_core::LimitStatus::remaining).collect::<Vec<_>>()
    };
    assert!(subject.reserve(&chain, id(7)).await);
    assert_eq!(left().await, [90, 16, 93]);
    for verdict in [Verdict::Done, Verdict::Before] {
        let settled = subject.settle(&chain, id(7), &[6, 9, 0]).await;
        assert_eq!((settled.verdict, &settled.settled[..]), (verdict, &[6, 9, 0].map(Into::into)[..]));
        assert_eq!(left().await, [94, 11, 100]);
    }
}

/// Usage of last month is not given back to this month.
pub async fn a_reservation_of_an_earlier_window_gives_nothing_back_to_this_one(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::quota(10).per_minute());
    let line = |cost| [("ann", "limit", limit, cost)];
    assert!(subject.reserve(&line(8), long(7)).await);
    subject.wait(Duration::from_secs(60));
    assert!(subject.spend("ann", limit, 5).await.allowed());
    assert_eq!(subject.settle(&line(8), long(7), &[0]).await.verdict, Verdict::Done);
    assert_eq!(subject.left("ann", limit).await, 5, "the window of the reservation is over");
    assert!(subject.reserve(&line(2), long(8)).await);
    subject.settle(&line(2), long(8), &[1]).await;
    assert_eq!(subject.left("ann", limit).await, 4);
    assert!(subject.reserve(&line(2), long(9)).await);
    subject.wait(Duration::from_secs(60));
    subject.settle(&line(2), long(9), &[5]).await;
    assert_eq!(subject.left("ann", limit).await, 7, "a shortfall is charged in this window");
}

/// Of many that settle at once, one does, and all report its amount.
pub async fn of_many_that_settle_a_reservation_at_once_one_does(
    subject: StoreUnderTest<impl Store + 'static>,
) {
    let (user, shared) = (built(Limit::per_day(1).burst(1_000)), built(Limit::per_day(1).burst(1_000)));
    let line = [("ann", "limit", user, 50), ("everybody", "limit", shared, 50)];
    let mut spent = 0;
    for number in 0..20 {
        assert!(subject.reserve(&line, id(number)).await);
        let settle = |tokens: u64| {
            let store = std::sync::Arc::clone(&subject.store);
            let costs = [spile_core::Cost::new(tokens).expect("the cost is within bounds"); 2];
            tokio::spawn(async move {
                let charges = super::charges(&line);
                store.settle(&charges, id(number), &costs).await.expect("the store answers")
            })
        };
        let mut outcomes = Vec::new();
        for task in [10, 20, 30, 40, 60, 70, 80, 0].map(settle) {
            outcomes.push(task.await.expect("the task ends"));
        }
        let done: Vec<_> = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Done).collect();
        assert_eq!(done.len(), 1);
        let amount = done[0].settled[0];
        assert!(outcomes.iter().all(|outcome| outcome.settled[..] == [amount; 2]), "one amount");
        spent += amount.whole_tokens();
        for (key, limit) in [("ann", user), ("everybody", shared)] {
            assert_eq!(subject.left(key, limit).await, 1_000 - spent);
        }
    }
}
