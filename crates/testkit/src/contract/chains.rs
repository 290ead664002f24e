//! Promises about several buckets at once.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{Limit, Store, StoreExt};

use super::StoreUnderTest;
use super::subject::built;

/// Either each limit of the chain is charged or none is.
pub async fn a_chain_is_spent_whole_or_not_at_all(subject: StoreUnderTest<impl Store>) {
    let (burst, daily) = (built(Limit::per_second(1).burst(2)), built(Limit::per_day(100)));
    let chain = [("chain", "gold/burst", burst, 1), ("chain", "gold/daily", daily, 1)];
    assert!(subject.spend_chain(&chain).await.allowed());
    assert!(subject.spend_chain(&chain).await.allowed());
    for _ in 0..5 {
        let denied = subject.spend_chain(&chain).await;
        assert!(!denied.allowed());
        assert_eq!(denied.limited_by().map(ToString::to_string).as_deref(), Some("gold/burst"));
    }
    let stands = subject.peek_chain(&chain).await;
    assert_eq!(stands.limits()[1].remaining(), 98, "denials charged the other limit nothing");
}

/// Waiting for the one that is named is enough for all.
pub async fn a_denied_chain_names_the_limit_with_the_longest_wait(subject: StoreUnderTest<impl Store>) {
    let (fast, slow) = (built(Limit::per_second(1)), built(Limit::per_minute(1)));
    let chain = [("longest", "p/fast", fast, 1), ("longest", "p/slow", slow, 1)];
    assert!(subject.spend_chain(&chain).await.allowed());
    let denied = subject.spend_chain(&chain).await;
    assert_eq!(denied.binding().name().as_str(), "p/slow");
    assert_eq!(denied.retry_after(), Duration::from_secs(60));
    subject.wait(denied.retry_after());
    assert!(subject.spend_chain(&chain).await.allowed());
}

/// A caller who is let in sees the limit that will deny first, even if it has more tokens left than another.
pub async fn an_allowed_chain_names_the_limit_that_will_deny_first(subject: StoreUnderTest<impl Store>) {
    let (wide, narrow) = (built(Limit::per_second(100)), built(Limit::per_second(5)));
    let chain = [("fewest", "p/wide", wide, 1), ("fewest", "p/narrow", narrow, 1)];
    let allowed = subject.spend_chain(&chain).await;
    assert_eq!(allowed.binding().name().as_str(), "p/narrow");
    assert_eq!(allowed.remaining(), 4);
    assert_eq!(allowed.limits().len(), 2);
    let (requests, tokens) = (built(Limit::per_minute(60)), built(Limit::per_minute(200)));
    let chain = [("first", "p/requests", requests, 1), ("first", "p/tokens", tokens, 100)];
    let allowed = subject.spend_chain(&chain).await;
    assert_eq!(allowed.binding().name().as_str(), "p/tokens");
    assert_eq!(allowed.remaining(), 100);
}

/// A user, their tenant and every caller together: one decision.
pub async fn a_chain_across_keys_is_spent_whole_or_not_at_all(subject: StoreUnderTest<impl Store>) {
    let (user, all) = (built(Limit::per_hour(1).burst(5)), built(Limit::per_hour(1).burst(8)));
    let chain = |who| [(who, "user", user, 1), ("everybody", "global", all, 1)];
    for _ in 0..5 {
        assert!(subject.spend_chain(&chain("ann")).await.allowed());
    }
    assert!(!subject.spend_chain(&chain("ann")).await.allowed());
    for _ in 0..3 {
        assert!(subject.spend_chain(&chain("bob")).await.allowed(), "ann's denials cost nobody");
    }
    let denied = subject.spend_chain(&chain("bob")).await;
    assert_eq!(denied.limited_by().map(ToString::to_string).as_deref(), Some("global"));
    assert_eq!(denied.limits()[0].remaining(), 2, "bob keeps what the global limit denied");
}

/// Many callers with overlapping chains: what the shared bucket lost is what was admitted.
pub async fn crossing_chains_conserve_every_token<S: Store + 'static>(subject: StoreUnderTest<S>) {
    const CALLERS: u64 = 8;
    let (own, shared) = (built(Limit::per_hour(1).burst(40)), built(Limit::per_hour(1).burst(150)));
    let lines = move |caller: u64| {
        // Half the callers name the shared bucket first: the order of a chain must not deadlock it.
        let (own, shared) = ((format!("caller {caller}"), own), ("all".to_owned(), shared));
        if caller.is_multiple_of(2) { [own, shared] } else { [shared, own] }
    };
    let callers = (0..CALLERS).map(|caller| {
        let store = Arc::clone(&subject.store);
        tokio::spawn(async move {
            let lines = lines(caller);
            let line = |index: usize| {
                let (key, limit) = &lines[index];
                (key.as_str(), if key == "all" { "shared" } else { "own" }, *limit, 1)
            };
            let charges = super::charges(&[line(0), line(1)]);
            let mut admitted = 0;
            for _ in 0..50 {
                admitted += u64::from(store.spend(&charges).await.expect("the store answers").allowed);
            }
            admitted
        })
    });
    let mut admitted = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        admitted.push(caller.await.expect("no caller panics"));
    }
    for (caller, &admitted) in admitted.iter().enumerate() {
        let key = format!("caller {caller}");
        let left = subject.peek_chain(&[(&key, "own", own, 0)]).await.remaining();
        assert_eq!(left, 40 - admitted, "caller {caller} lost what was admitted");
    }
    let total: u64 = admitted.iter().sum();
    let left = subject.peek_chain(&[("all", "shared", shared, 0)]).await.remaining();
    assert_eq!((total, left.whole_tokens()), (150, 0), "all that could be admitted was, and no more");
}
