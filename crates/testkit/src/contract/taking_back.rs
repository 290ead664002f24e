//! Promises about giving back, starting over and taking a part.

use std::time::Duration;

use spile_core::{Limit, Store};

use super::Subject;

/// What was not used comes back.
pub async fn a_refund_gives_back_what_was_spent(subject: Subject<impl Store>) {
    let limit = Limit::per_hour(1).burst(10);
    assert!(subject.spend("refunds", limit, 8).await.allowed());
    subject.refund("refunds", limit, 5).await;
    assert_eq!(subject.left("refunds", limit).await, 7);
}

/// Nobody can save up by giving back.
pub async fn a_refund_never_rises_above_the_capacity(subject: Subject<impl Store>) {
    let limit = Limit::per_hour(1).burst(10);
    assert!(subject.spend("overflows", limit, 1).await.allowed());
    subject.refund("overflows", limit, 10).await;
    assert_eq!(subject.left("overflows", limit).await, 10);
    subject.drain("overflows", limit).await;
    assert!(!subject.spend("overflows", limit, 1).await.allowed());
}

/// Giving back to somebody unknown leaves them unknown, under whatever limit they come with later.
pub async fn a_refund_never_creates_a_bucket(subject: Subject<impl Store>) {
    subject.refund("unknown", Limit::per_hour(1).burst(5), 5).await;
    assert_eq!(subject.left("unknown", Limit::per_hour(1).burst(10)).await, 10);
}

/// An operator can let somebody start over.
pub async fn a_reset_fills_the_bucket(subject: Subject<impl Store>) {
    let limit = Limit::per_hour(1).burst(10);
    subject.drain("starts over", limit).await;
    subject.reset("starts over", limit).await;
    assert_eq!(subject.left("starts over", limit).await, 10);
    subject.reset("never seen", limit).await;
    assert_eq!(subject.left("never seen", limit).await, 10);
}

/// Who can use a part gets a part.
pub async fn a_partial_spend_takes_what_is_there(subject: Subject<impl Store>) {
    let limit = Limit::per_second(1).burst(10);
    let line = |cost| [("partial", "limit", limit, cost)];
    assert_eq!(subject.spend_up_to(&line(4)).await.tokens, 4);
    assert_eq!(subject.spend_up_to(&line(10)).await.tokens, 6);
    let nothing = subject.spend_up_to(&line(10)).await;
    assert_eq!(nothing.tokens, 0);
    assert!(!nothing.outcome.allowed);
    subject.wait(Duration::from_millis(2_999));
    assert_eq!(subject.spend_up_to(&line(10)).await.tokens, 2, "whole tokens only");
    subject.wait(Duration::from_millis(1));
    assert_eq!(subject.left("partial", limit).await, 1, "and the rest of a token is kept");
}

/// The scarcest limit says how much.
pub async fn a_partial_spend_of_a_chain_takes_what_every_limit_has(subject: Subject<impl Store>) {
    let (wide, narrow) = (Limit::per_hour(1).burst(100), Limit::per_hour(1).burst(7));
    let chain = [("parts", "p/wide", wide, 5), ("parts", "p/narrow", narrow, 5)];
    assert_eq!(subject.spend_up_to(&chain).await.tokens, 5);
    assert_eq!(subject.spend_up_to(&chain).await.tokens, 2);
    assert_eq!(subject.spend_up_to(&chain).await.tokens, 0);
    assert_eq!(subject.peek_chain(&chain).await.limits()[0].remaining(), 93);
}
