//! Promises about refunds, resets and partial spends.

use std::time::Duration;

use spile_calendar::CalendarLimit;
use spile_core::{Limit, SpendTime, Store};

use super::StoreUnderTest;
use super::subject::built;

/// Unused tokens come back.
pub async fn a_refund_gives_back_what_was_spent(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(10));
    assert!(subject.spend("refunds", limit, 8).await.allowed());
    subject.refund("refunds", limit, 5).await;
    assert_eq!(subject.left("refunds", limit).await, 7);
}

/// Refunds never exceed the capacity.
pub async fn a_refund_never_rises_above_the_capacity(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(10));
    assert!(subject.spend("overflows", limit, 1).await.allowed());
    subject.refund("overflows", limit, 10).await;
    assert_eq!(subject.left("overflows", limit).await, 10);
    subject.drain("overflows", limit).await;
    assert!(!subject.spend("overflows", limit, 1).await.allowed());
}

/// A refund to an unknown key creates no bucket, under whichever limit it is charged later.
pub async fn a_refund_never_creates_a_bucket(subject: StoreUnderTest<impl Store>) {
    subject.refund("unknown", built(Limit::per_hour(1).burst(5)), 5).await;
    assert_eq!(subject.left("unknown", built(Limit::per_hour(1).burst(10))).await, 10);
}

/// Usage of one window is never given back to another, nor to a window that is not known.
pub async fn a_refund_of_a_quota_returns_to_the_window_that_it_was_spent_in(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::quota(10).per_minute());
    let spent = SpendTime::At(subject.spend("ann", limit, 4).await.at());
    subject.refund_spent("ann", limit, 1, SpendTime::Unknown).await;
    assert_eq!(subject.left("ann", limit).await, 6, "the time is unknown");
    subject.refund_spent("ann", limit, 1, spent).await;
    assert_eq!(subject.left("ann", limit).await, 7);
    subject.wait(Duration::from_secs(60));
    assert!(subject.spend("ann", limit, 5).await.allowed());
    subject.refund_spent("ann", limit, 3, spent).await;
    assert_eq!(subject.left("ann", limit).await, 5, "the window is over");
    subject.refund_spent("ann", limit, 3, SpendTime::At(subject.now() + Duration::from_secs(60))).await;
    assert_eq!(subject.left("ann", limit).await, 5, "the window is yet to come");
    subject.refund_spent("ann", limit, 3, SpendTime::ThisWindow).await;
    assert_eq!(subject.left("ann", limit).await, 8);
}

/// Who does not know whether a refund has arrived may ask again.
pub async fn a_refund_with_an_id_is_given_once(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_day(1).burst(10));
    let line = |cost| [("once", "limit", limit, cost)];
    assert!(subject.spend("once", limit, 8).await.allowed());
    assert!(subject.refund_once(&line(3), "order 7").await);
    assert_eq!(subject.left("once", limit).await, 5);
    for _ in 0..3 {
        assert!(!subject.refund_once(&line(3), "order 7").await);
        assert_eq!(subject.left("once", limit).await, 5, "a repeated refund changes nothing");
    }
    assert!(subject.refund_once(&line(9), "order 8").await, "another id is another refund");
    assert_eq!(subject.left("once", limit).await, 10, "and no refund rises above the capacity");
}

/// The whole chain is given back, and no part of it twice.
pub async fn a_refund_with_an_id_of_a_chain_across_keys_is_given_once(subject: StoreUnderTest<impl Store>) {
    let (user, all) = (built(Limit::per_day(1).burst(5)), built(Limit::per_day(1).burst(100)));
    let chain = |cost| {
        [("ann", "p/user", user, cost), ("everybody", "global", all, cost), ("ann", "p/other", user, cost)]
    };
    let left = async || {
        let stands = subject.peek_chain(&chain(0)).await;
        stands.limits().iter().map(spile_core::LimitStatus::remaining).collect::<Vec<_>>()
    };
    assert!(subject.spend_chain(&chain(4)).await.allowed());
    for first in [true, false, false] {
        assert_eq!(subject.refund_once(&chain(2), "7").await, first);
        assert_eq!(left().await, [3, 98, 3]);
    }
}

/// Another key with the same id gets a separate refund, and after an hour an id can be used again.
pub async fn the_id_of_a_refund_belongs_to_a_key_and_is_remembered_for_an_hour(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::per_day(1).burst(10));
    for key in ["ann", "bob"] {
        subject.drain(key, limit).await;
        assert!(subject.refund_once(&[(key, "limit", limit, 1)], "7").await, "{key}");
    }
    subject.wait(Duration::from_secs(3_599));
    assert!(!subject.refund_once(&[("ann", "limit", limit, 1)], "7").await);
    subject.wait(Duration::from_secs(1));
    assert!(subject.refund_once(&[("ann", "limit", limit, 1)], "7").await);
}

/// An operator can make a bucket full again.
pub async fn a_reset_fills_the_bucket(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(10));
    subject.drain("starts over", limit).await;
    subject.reset("starts over", limit).await;
    assert_eq!(subject.left("starts over", limit).await, 10);
    subject.reset("never seen", limit).await;
    assert_eq!(subject.left("never seen", limit).await, 10);
}

/// Who can use a part gets a part.
pub async fn a_partial_spend_takes_what_is_there(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1).burst(10));
    let line = |cost| [("partial", "limit", limit, cost)];
    assert_eq!(subject.spend_up_to(&line(4)).await.granted, 4);
    assert_eq!(subject.spend_up_to(&line(10)).await.granted, 6);
    let nothing = subject.spend_up_to(&line(10)).await;
    assert_eq!(nothing.granted, 0);
    assert!(!nothing.outcome.allowed);
    subject.wait(Duration::from_millis(2_999));
    assert_eq!(subject.spend_up_to(&line(10)).await.granted, 2, "whole tokens only");
    subject.wait(Duration::from_millis(1));
    assert_eq!(subject.left("partial", limit).await, 1, "and the rest of a token is kept");
}

/// The scarcest limit says how much.
pub async fn a_partial_spend_of_a_chain_takes_what_every_limit_has(subject: StoreUnderTest<impl Store>) {
    let (wide, narrow) = (built(Limit::per_hour(1).burst(100)), built(Limit::per_hour(1).burst(7)));
    let chain = [("parts", "p/wide", wide, 5), ("parts", "p/narrow", narrow, 5)];
    assert_eq!(subject.spend_up_to(&chain).await.granted, 5);
    assert_eq!(subject.spend_up_to(&chain).await.granted, 2);
    assert_eq!(subject.spend_up_to(&chain).await.granted, 0);
    assert_eq!(subject.peek_chain(&chain).await.limits()[0].remaining(), 93);
}
