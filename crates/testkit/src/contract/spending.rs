//! Promises about one bucket.

use std::time::Duration;

use spile_core::{Decision, DecisionSource, Limit, Reply, Store, StoreExt};

use super::subject::built;
use super::{StoreUnderTest, charges};

/// A new bucket is full.
pub async fn a_bucket_starts_full(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1).burst(10));
    assert_eq!(subject.left("starts full", limit).await, 10);
    for left in (0..10).rev() {
        let decision = subject.spend("starts full", limit, 1).await;
        assert!(decision.allowed());
        assert_eq!(decision.remaining(), left);
    }
    assert!(!subject.spend("starts full", limit, 1).await.allowed());
}

/// A request of cost n is worth n of cost one.
pub async fn a_spend_takes_what_it_costs(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1).burst(10));
    assert_eq!(subject.spend("costs", limit, 7).await.remaining(), 3);
    assert_eq!(subject.spend("costs", limit, 3).await.remaining(), 0);
}

/// A charge without a list gives the same answer, or `None` and spends nothing.
pub async fn a_charge_without_a_list_answers_like_a_spend_or_takes_nothing(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::per_second(1).burst(3));
    for _ in 0..4 {
        let charged = charges(&[("alone", "limit", limit, 1)]);
        let expected = subject.spend("in a list", limit, 1).await;
        let [charge] = &*charged else { unreachable!("one line is one charge") };
        match subject.store.spend_one(charge.key(), charge.limit(), charge.cost()) {
            Some(spent) => {
                let outcome = Reply::from(spent).into_outcome();
                assert_eq!(Decision::from_outcome(&charged, &outcome, DecisionSource::Store), expected);
            }
            None => assert_eq!(subject.left("alone", limit).await, 3),
        }
    }
}

/// Who is refused keeps what they have.
pub async fn a_denial_takes_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1).burst(10));
    assert!(subject.spend("denied", limit, 7).await.allowed());
    let denied = subject.spend("denied", limit, 4).await;
    assert!(!denied.allowed());
    assert_eq!(denied.remaining(), 3);
    assert_eq!(denied.retry_after(), Duration::from_secs(1));
    assert!(subject.spend("denied", limit, 3).await.allowed());
}

/// Asking too early, however often, does not move the moment of admission.
pub async fn a_polling_client_does_not_starve_itself(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_minute(1));
    subject.drain("polls", limit).await;
    for _ in 0..59 {
        subject.wait(Duration::from_secs(1));
        assert!(!subject.spend("polls", limit, 1).await.allowed());
    }
    subject.wait(Duration::from_secs(1));
    assert!(subject.spend("polls", limit, 1).await.allowed());
}

/// Refill is even, not at the end of the period.
pub async fn tokens_come_back_at_the_rate(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(50).burst(100));
    subject.drain("refills", limit).await;
    subject.wait(Duration::from_millis(20));
    assert_eq!(subject.left("refills", limit).await, 1);
    subject.wait(Duration::from_millis(980));
    assert_eq!(subject.left("refills", limit).await, 50);
}

/// Idling saves up one burst, never more.
pub async fn a_bucket_never_holds_more_than_its_capacity(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1).burst(10));
    assert!(subject.spend("idles", limit, 5).await.allowed());
    subject.wait(Duration::from_secs(86_400 * 365));
    assert_eq!(subject.left("idles", limit).await, 10);
    subject.drain("idles", limit).await;
    assert!(!subject.spend("idles", limit, 1).await.allowed());
}

/// The wait that a denial names is exact.
pub async fn a_denied_caller_who_waits_retry_after_is_let_in_and_not_a_microsecond_before(
    subject: StoreUnderTest<impl Store>,
) {
    let limits = [
        built(Limit::per_minute(7).burst(3)),
        built(Limit::per_second(3)),
        built(Limit::per_day(11)),
        built(Limit::per_hour(1)),
    ];
    for (index, limit) in limits.into_iter().enumerate() {
        let key = format!("waits {index}");
        subject.drain(&key, limit).await;
        subject.wait(Duration::from_micros(123_457));
        let denied = subject.spend(&key, limit, 1).await;
        assert!(!denied.allowed());
        subject.wait(denied.retry_after().saturating_sub(Duration::from_micros(1)));
        assert!(!subject.spend(&key, limit, 1).await.allowed(), "{limit:?} a microsecond early");
        subject.wait(Duration::from_micros(1));
        assert!(subject.spend(&key, limit, 1).await.allowed(), "{limit:?} in time");
    }
}

/// A cost of nothing changes nothing, and passes as long as a cost of one would.
pub async fn cost_zero_asks_for_a_token_and_spends_none(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_day(10));
    assert!(subject.spend("zero", limit, 4).await.allowed());
    for _ in 0..20 {
        subject.wait(Duration::from_micros(1));
        let looked = subject.spend("zero", limit, 0).await;
        assert!(looked.allowed());
        assert_eq!(looked.remaining(), 6);
    }
    subject.wait(Duration::from_secs(8_640).saturating_sub(Duration::from_micros(20)));
    assert_eq!(subject.left("zero", limit).await, 7, "no look has moved the refill");
    subject.drain("zero", limit).await;
    let empty = subject.spend("zero", limit, 0).await;
    assert!(!empty.allowed());
    assert_eq!(empty.retry_after(), Duration::from_secs(8_640));
    looking_leaves_no_trace(&subject, async |key, limit| drop(subject.spend(key, limit, 0).await)).await;
}

/// Looking says what spending would say.
pub async fn a_peek_answers_like_a_spend_and_writes_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1).burst(10));
    for _ in 0..3 {
        let looked = subject.peek("peeks", limit, 10).await;
        assert!(looked.allowed());
        assert_eq!(looked.remaining(), 10);
    }
    assert!(subject.spend("peeks", limit, 8).await.allowed());
    let looked = subject.peek("peeks", limit, 3).await;
    assert!(!looked.allowed());
    assert_eq!(looked.retry_after(), Duration::from_secs(1));
    assert_eq!(looked.retry_after(), subject.spend("peeks", limit, 3).await.retry_after());
    looking_leaves_no_trace(&subject, async |key, limit| drop(subject.peek(key, limit, 1).await)).await;
}

/// A look makes no bucket, moves no refill, and does not write down that the clock has stepped back.
async fn looking_leaves_no_trace(subject: &StoreUnderTest<impl Store>, look: impl AsyncFn(&str, Limit)) {
    look("looked at", built(Limit::per_day(5))).await;
    assert_eq!(subject.left("looked at", built(Limit::per_day(10))).await, 10, "a look made a bucket of 5");

    let limit = built(Limit::per_day(10));
    let a_token = Duration::from_secs(8_640);
    for (key, spent) in [("looked at", 4), ("looked at when empty", 10)] {
        assert!(subject.spend(key, limit, spent).await.allowed());
        subject.wait(a_token / 2);
        look(key, limit).await;
        subject.wait(a_token / 2);
        assert_eq!(subject.left(key, limit).await, 11 - spent, "a look moved the refill");
        subject.clock.step_back(a_token);
        look(key, limit).await;
        subject.wait(a_token);
        assert_eq!(subject.left(key, limit).await, 11 - spent, "a look wrote the clock's step back");
    }
}

/// One token a day and a thousand million a second.
pub async fn the_slowest_and_the_fastest_rates_work(subject: StoreUnderTest<impl Store>) {
    let slow = built(Limit::per_day(1));
    subject.drain("slow", slow).await;
    subject.wait(Duration::from_secs(86_399));
    assert!(!subject.spend("slow", slow, 1).await.allowed());
    subject.wait(Duration::from_secs(1));
    assert!(subject.spend("slow", slow, 1).await.allowed());

    let fast = built(Limit::per_second(1_000_000_000));
    subject.drain("fast", fast).await;
    subject.wait(Duration::from_micros(1));
    assert_eq!(subject.left("fast", fast).await, 1_000);
}

/// A burst of one and a burst of a thousand million.
pub async fn the_smallest_and_the_largest_capacities_work(subject: StoreUnderTest<impl Store>) {
    let smallest = built(Limit::per_second(1_000).burst(1));
    assert!(subject.spend("smallest", smallest, 1).await.allowed());
    assert!(!subject.spend("smallest", smallest, 1).await.allowed());
    subject.wait(Duration::from_millis(1));
    assert!(subject.spend("smallest", smallest, 1).await.allowed());

    let largest = built(Limit::per_second(100).burst(1_000_000_000));
    assert_eq!(subject.spend("largest", largest, 1).await.remaining(), 999_999_999);
    subject.drain("largest", largest).await;
    assert!(!subject.spend("largest", largest, 1).await.allowed());
}

/// A plan that changes takes effect at once, and no caller gains by it.
pub async fn a_changed_limit_carries_tokens_over_and_clamps_them(subject: StoreUnderTest<impl Store>) {
    let (small, large) = (built(Limit::per_second(1).burst(10)), built(Limit::per_second(5).burst(100)));
    assert!(subject.spend("changes", small, 4).await.allowed());
    assert_eq!(subject.left("changes", large).await, 6, "a larger plan keeps what is there");
    subject.wait(Duration::from_secs(10));
    assert_eq!(subject.left("changes", large).await, 56, "and fills at its own rate");
    assert!(subject.spend("changes", large, 1).await.allowed());
    assert_eq!(subject.left("changes", small).await, 10, "a smaller one clamps");
}

/// Who has spent everything under the old plan waits as long as the new one takes, however many others come by.
pub async fn a_tightened_limit_gives_nobody_a_fresh_start(subject: StoreUnderTest<impl Store>) {
    let (before, after) = (built(Limit::per_second(10)), built(Limit::per_day(10)));
    subject.drain("tightened", before).await;
    assert!(!subject.spend("tightened", after, 1).await.allowed());
    subject.wait(Duration::from_secs(2));
    for stranger in 0..300 {
        assert!(subject.spend(&format!("stranger {stranger}"), before, 1).await.allowed());
    }
    assert!(!subject.spend("tightened", after, 1).await.allowed());
    subject.wait(Duration::from_secs(8_640 - 2));
    assert!(subject.spend("tightened", after, 1).await.allowed(), "and no longer");
}

/// However many ask at once, no more pass than the bucket held.
pub async fn many_callers_at_once_share_exactly_one_bucket<S: Store + 'static>(subject: StoreUnderTest<S>) {
    let limit = built(Limit::per_hour(1).burst(100));
    let callers = (0..8).map(|_| {
        let store = std::sync::Arc::clone(&subject.store);
        tokio::spawn(async move {
            let charges = super::charges(&[("crowd", "limit", limit, 1)]);
            let mut admitted = 0;
            for _ in 0..50 {
                admitted += u32::from(store.spend(&charges).await.expect("the store answers").allowed);
            }
            admitted
        })
    });
    let mut admitted = 0;
    for caller in callers.collect::<Vec<_>>() {
        admitted += caller.await.expect("no caller panics");
    }
    assert_eq!(admitted, 100);
}
