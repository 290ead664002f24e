//! Promises about reservations: charged at once, settled once.

use std::time::Duration;

use futures_util::future::join_all;
use spile_calendar::CalendarLimit;
use spile_core::{Limit, ReservationMarker, Store, StoreExt};

use super::subject::built;
use super::{ChargeSpec, StoreUnderTest};

const TTL: Duration = Duration::from_secs(60);

fn marker(id: u128) -> ReservationMarker {
    ReservationMarker::new(id, TTL).expect("a minute is within bounds")
}

/// What was reserved and not used comes back, once, however often that is said.
pub async fn a_reservation_is_charged_at_once_and_settled_once(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_day(1).burst(10));
    let line = [("ann", "limit", limit, 8)];
    assert!(subject.reserve(&line, marker(7)).await);
    assert_eq!(subject.left("ann", limit).await, 2);
    assert!(!subject.reserve(&line, marker(8)).await, "the rest does not cover another one");
    assert_eq!(subject.settle(&line, marker(8), 0).await, None, "what was denied has reserved nothing");
    assert_eq!(subject.settle(&line, marker(7), 3).await, Some(0));
    assert_eq!(subject.left("ann", limit).await, 7);
    for actual in [0, 3, 10] {
        assert_eq!(subject.settle(&line, marker(7), actual).await, None);
        assert_eq!(subject.left("ann", limit).await, 7, "it is settled once");
    }
}

/// A caller that gives up pays nothing.
pub async fn a_reservation_that_is_settled_at_nothing_is_given_back(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_day(1).burst(10));
    let line = [("ann", "limit", limit, 10)];
    assert!(subject.reserve(&line, marker(7)).await);
    assert_eq!(subject.settle(&line, marker(7), 0).await, Some(0));
    assert_eq!(subject.left("ann", limit).await, 10);
    assert!(subject.reserve(&line, marker(7)).await, "and its id can be used again");
}

/// What was used is charged, even if less was reserved.
pub async fn a_reservation_that_cost_more_takes_the_bucket_into_debt(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(10).debt(5));
    let line = [("ann", "limit", limit, 6)];
    assert!(subject.reserve(&line, marker(7)).await);
    assert_eq!(subject.settle(&line, marker(7), 12).await, Some(0));
    assert_eq!(subject.owed("ann", limit).await, 2);
    subject.wait(Duration::from_secs(3 * 3_600));
    assert!(subject.reserve(&[("ann", "limit", limit, 1)], marker(8)).await);
    assert_eq!(subject.settle(&[("ann", "limit", limit, 1)], marker(8), 9).await, Some(3), "beyond the debt");
    assert_eq!(subject.owed("ann", limit).await, 5);
}

/// A reservation that is not settled in time stays charged.
pub async fn an_expired_reservation_stays_charged(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per(1, Duration::from_secs(365 * 86_400)).burst(10));
    let just_before = Duration::from_micros(59_999_999);
    for (id, waits, settled) in [(7, just_before, Some(0)), (8, TTL, None)] {
        let line = [("ann", "limit", limit, 5)];
        assert!(subject.reserve(&line, marker(id)).await);
        subject.wait(waits);
        assert_eq!(subject.settle(&line, marker(id), 0).await, settled, "after {waits:?}");
    }
    assert_eq!(subject.left("ann", limit).await, 5);
}

/// Each limit of a chain is settled by what was reserved of it, and each key by itself.
pub async fn a_reservation_of_a_chain_is_settled_in_each_limit(subject: StoreUnderTest<impl Store>) {
    let (wide, narrow) = (built(Limit::per_day(1).burst(100)), built(Limit::per_day(1).burst(20)));
    let own: [ChargeSpec<'_>; 2] = [("ann", "p/wide", wide, 10), ("ann", "p/narrow", narrow, 4)];
    let shared: [ChargeSpec<'_>; 1] = [("everybody", "all", wide, 7)];
    let chain = [own[0], own[1], shared[0]];
    assert!(subject.reserve(&chain, marker(7)).await);
    assert_eq!(subject.settle(&own, marker(7), 6).await, Some(0));
    assert_eq!(subject.settle(&own, marker(7), 6).await, None);
    let left = async || {
        let stands = subject.peek_chain(&chain.map(|(key, name, limit, _)| (key, name, limit, 0))).await;
        stands.limits().iter().map(spile_core::LimitStatus::remaining).collect::<Vec<_>>()
    };
    assert_eq!(left().await, [94, 14, 93], "the other key waits to be settled");
    assert_eq!(subject.settle(&shared, marker(7), 6).await, Some(0));
    assert_eq!(left().await, [94, 14, 94]);
}

/// What was reserved last month is not given back to this month.
pub async fn a_reservation_of_an_earlier_window_gives_nothing_back_to_this_one(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::quota(10).per_minute());
    let line = |cost| [("ann", "limit", limit, cost)];
    let long = ReservationMarker::new(7, Duration::from_secs(600)).expect("ten minutes are within bounds");
    assert!(subject.reserve(&line(8), long).await);
    subject.wait(Duration::from_secs(60));
    assert!(subject.spend("ann", limit, 5).await.allowed());
    assert_eq!(subject.settle(&line(8), long, 0).await, Some(0));
    assert_eq!(subject.left("ann", limit).await, 5, "the window of the reservation is over");
    let long = ReservationMarker::new(8, Duration::from_secs(600)).expect("ten minutes are within bounds");
    assert!(subject.reserve(&line(2), long).await);
    assert_eq!(subject.settle(&line(2), long, 1).await, Some(0));
    assert_eq!(subject.left("ann", limit).await, 4);
    subject.wait(Duration::from_secs(60));
    assert_eq!(subject.settle(&line(2), long, 5).await, None);
}

/// A caller that never settles cannot fill the store.
pub async fn open_reservations_of_a_key_are_bounded(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1_000_000).burst(1_000_000));
    let line = [("ann", "limit", limit, 1)];
    let most = u128::from(ReservationMarker::MOST_OPEN);
    let ids: Vec<u128> = (0..most).collect();
    for some in ids.chunks(500) {
        let reserved = join_all(some.iter().map(|&id| subject.reserve(&line, marker(id)))).await;
        assert!(reserved.into_iter().all(|reserved| reserved), "up to {}", some[0]);
    }
    assert!(!subject.reserve(&line, marker(most)).await);
    assert!(subject.reserve(&[("bob", "limit", limit, 1)], marker(most)).await, "each key has its own count");
    assert_eq!(subject.settle(&line, marker(3), 1).await, Some(0));
    assert!(subject.reserve(&line, marker(most)).await, "what is settled is not open");
    assert!(!subject.reserve(&line, marker(most + 1)).await);
    subject.wait(2 * TTL);
    assert!(subject.reserve(&line, marker(most + 1)).await, "what has expired is not open");
}

/// Of many that settle at once, one does.
pub async fn of_many_that_settle_a_reservation_at_once_one_does(
    subject: StoreUnderTest<impl Store + 'static>,
) {
    let limit = built(Limit::per_day(1).burst(100));
    let line = [("ann", "limit", limit, 50)];
    for id in 0..20 {
        assert!(subject.reserve(&line, marker(id)).await);
        let settle = |actual| {
            let store = std::sync::Arc::clone(&subject.store);
            let cost = spile_core::Cost::new(actual).expect("the cost is within bounds");
            tokio::spawn(async move {
                let charges = super::charges(&[("ann", "limit", limit, 50)]);
                store.settle(&charges, marker(id), cost).await.expect("the store answers").settled
            })
        };
        let mut settled = 0;
        for task in [0; 8].map(settle) {
            settled += u32::from(task.await.expect("the task ends"));
        }
        assert_eq!(settled, 1);
        assert_eq!(subject.left("ann", limit).await, 100);
    }
}
