//! Promises about charges for what has been used already.

use std::time::Duration;

use spile_core::{Amount, Limit, Store};

use super::StoreUnderTest;
use super::subject::built;

/// A charge beyond the level is owed, and the refill repays it before a request passes.
pub async fn a_late_charge_takes_the_bucket_into_debt_and_the_refill_repays_it(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::per_second(1).burst(10));
    assert_eq!(subject.charge(&[("late", "limit", limit, 4)]).await, 0);
    assert_eq!(subject.left("late", limit).await, 6);
    assert_eq!(subject.charge(&[("late", "limit", limit, 11)]).await, 0);
    assert_eq!((subject.left("late", limit).await, subject.owed("late", limit).await), (0, 5));
    for cost in [0, 1] {
        let denied = subject.spend("late", limit, cost).await;
        assert!(!denied.allowed(), "a cost of {cost}");
        assert_eq!(denied.retry_after(), Duration::from_secs(6));
    }
    subject.wait(Duration::from_micros(5_999_999));
    assert!(!subject.spend("late", limit, 0).await.allowed());
    subject.wait(Duration::from_micros(1));
    assert!(subject.spend("late", limit, 0).await.allowed());
    assert!(subject.spend("late", limit, 1).await.allowed());
}

/// A debt has a floor, and the amount beyond it is reported.
pub async fn a_late_charge_beyond_the_debt_is_told_as_uncovered(subject: StoreUnderTest<impl Store>) {
    for (name, limit, debt) in [
        ("by default its capacity", built(Limit::per_hour(1).burst(10)), 10),
        ("as set", built(Limit::per_hour(1).burst(10).debt(25)), 25),
        ("none", built(Limit::per_hour(1).burst(10).debt(0)), 0),
    ] {
        assert_eq!(subject.charge(&[(name, "limit", limit, 10 + debt + 7)]).await, 7, "{name}");
        assert_eq!(subject.owed(name, limit).await, debt, "{name}");
        assert_eq!(subject.charge(&[(name, "limit", limit, 3)]).await, 3, "{name}");
        subject.refund(name, limit, 4).await;
        assert_eq!(subject.owed(name, limit).await, debt.saturating_sub(4), "{name}");
    }
}

/// No limit of a chain keeps another from being charged.
pub async fn a_late_charge_of_a_chain_is_taken_from_each_limit(subject: StoreUnderTest<impl Store>) {
    let (narrow, wide) = (built(Limit::per_hour(1).burst(5)), built(Limit::per_hour(1).burst(100)));
    let chain = |cost| {
        [("ann", "p/narrow", narrow, cost), ("all", "p/wide", wide, cost), ("ann", "p/wide", wide, cost)]
    };
    assert_eq!(subject.charge(&chain(30)).await, 20);
    let stands = subject.peek_chain(&chain(0)).await;
    let left: Vec<_> = stands
        .limits()
        .iter()
        .map(|status| [status.remaining(), status.owed()].map(Amount::whole_tokens))
        .collect();
    assert_eq!(left, [[0, 5], [70, 0], [70, 0]]);
    assert!(!stands.allowed(), "a chain passes if each of its limits lets it");
}

/// A lowered debt forgives nothing.
pub async fn a_debt_is_kept_when_its_limit_changes(subject: StoreUnderTest<impl Store>) {
    let deep = built(Limit::per_hour(1).burst(10).debt(100));
    let shallow = built(Limit::per_hour(1).burst(10).debt(5));
    assert_eq!(subject.charge(&[("changed", "limit", deep, 70)]).await, 0);
    assert_eq!(subject.owed("changed", shallow).await, 60);
    assert_eq!(subject.charge(&[("changed", "limit", shallow, 2)]).await, 2);
    assert_eq!(subject.owed("changed", shallow).await, 60);
    assert_eq!(subject.spend_up_to(&[("changed", "limit", deep, 5)]).await.granted, 0);
}
