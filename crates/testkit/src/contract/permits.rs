//! Promises about permits: at most N at once, each until it is released or its hold time has passed.

use std::time::Duration;

use futures_util::future::join_all;
use spile_core::{Amount, Inspect, Limit, PermitId, PermitStep, Store, StoreExt};

use super::subject::built;
use super::{ChargeSpec, StoreUnderTest};

const HOLD: Duration = Duration::from_secs(30);
const MICROSECOND: Duration = Duration::from_micros(1);
/// A microsecond less than the hold time.
const JUST_BEFORE: Duration = Duration::from_micros(29_999_999);

fn at_once(permits: u64) -> Limit {
    built(Limit::concurrent(permits).hold(HOLD))
}

/// One charge of a concurrency.
fn jobs(permits: u64) -> [ChargeSpec<'static>; 1] {
    [("ann", "limit", at_once(permits), 1)]
}

/// At most N are held at once, and the next caller is asked to come back in a second.
pub async fn at_most_so_many_permits_are_held_at_once(subject: StoreUnderTest<impl Store>) {
    let line = jobs(2);
    assert!(subject.acquire(&line, 1).await);
    assert!(subject.acquire(&line, 2).await);
    for id in [3, 4] {
        let charges = super::charges(&line);
        let denial = subject.permit(&charges, id, PermitStep::Acquire).await;
        assert!(!denial.allowed());
        assert_eq!(denial.retry_after(), Duration::from_secs(1));
        assert_eq!(
            (denial.remaining(), denial.binding().limit().capacity()),
            (Amount::ZERO, Amount::from(2))
        );
    }
    assert!(subject.acquire(&[("bob", "limit", at_once(2), 1)], 5).await, "each key has places of its own");
}

/// A place is free as soon as its permit is released, and a second release frees no other.
pub async fn a_released_permit_frees_its_place_once(subject: StoreUnderTest<impl Store>) {
    let line = jobs(2);
    assert!(subject.acquire(&line, 1).await);
    assert!(subject.acquire(&line, 2).await);
    assert!(subject.release(&line, 1).await);
    assert_eq!(subject.left("ann", at_once(2)).await, 1);
    for id in [1, 7] {
        assert!(!subject.release(&line, id).await, "{id} is not held");
    }
    assert_eq!(subject.left("ann", at_once(2)).await, 1);
    assert!(subject.acquire(&line, 3).await);
    assert!(!subject.acquire(&line, 4).await);
}

/// A holder that is gone holds its place for the hold time.
pub async fn a_permit_ends_when_its_hold_time_has_passed_and_not_a_microsecond_before(
    subject: StoreUnderTest<impl Store>,
) {
    let line = jobs(1);
    assert!(subject.acquire(&line, 1).await);
    subject.wait(JUST_BEFORE);
    assert!(!subject.acquire(&line, 2).await);
    assert_eq!(subject.left("ann", at_once(1)).await, 0);
    subject.wait(MICROSECOND);
    assert_eq!(subject.left("ann", at_once(1)).await, 1);
    assert!(subject.acquire(&line, 2).await);
    assert!(!subject.release(&line, 1).await, "what has ended cannot be released");
    assert!(!subject.acquire(&line, 3).await, "and does not free the place of another");
}

/// A holder that renews in time keeps its permit. One that does not learns it, and does not get it back by that.
pub async fn a_permit_that_is_renewed_in_time_is_held_for_another_hold_time(
    subject: StoreUnderTest<impl Store>,
) {
    let line = jobs(1);
    assert!(subject.acquire(&line, 1).await);
    for _ in 0..10 {
        subject.wait(JUST_BEFORE);
        assert!(subject.renew(&line, 1).await);
    }
    subject.wait(JUST_BEFORE);
    assert!(!subject.acquire(&line, 2).await);
    subject.wait(MICROSECOND);
    assert!(!subject.renew(&line, 1).await, "too late");
    assert!(subject.acquire(&line, 2).await);
    assert!(!subject.renew(&line, 1).await);
    assert!(!subject.renew(&line, 7).await, "never taken");
}

/// A permit is taken with the tokens, or nothing is.
pub async fn a_permit_and_tokens_are_taken_together_or_not_at_all(subject: StoreUnderTest<impl Store>) {
    let rate = built(Limit::per_day(1).burst(10));
    let chain = |cost| [("ann", "p/jobs", at_once(2), cost), ("ann", "p/rate", rate, cost)];
    let left = async || {
        let stands = subject.peek_chain(&chain(0)).await;
        stands.limits().iter().map(spile_core::LimitStatus::remaining).collect::<Vec<_>>()
    };
    assert!(subject.acquire(&chain(3), 1).await);
    assert_eq!(left().await, [1, 7], "a permit is one place, whatever the cost");
    assert!(!subject.acquire(&chain(8), 2).await, "there are not as many tokens");
    assert_eq!(left().await, [1, 7]);
    assert!(subject.acquire(&chain(1), 3).await);
    assert!(!subject.acquire(&chain(1), 4).await, "there is no place");
    assert_eq!(left().await, [0, 6]);
    assert!(subject.renew(&chain(1), 3).await);
    assert_eq!(left().await, [0, 6], "renewing costs no tokens");
    let permit_only = [chain(1)[0]];
    assert!(subject.release(&permit_only, 1).await);
    assert_eq!(left().await, [1, 6], "tokens that were used are not given back");
    assert!(subject.release(&chain(1), 3).await);
    assert_eq!(left().await, [2, 7], "unless that is asked for");
}

/// A holder that does not know whether it still holds its permit can ask for it again.
pub async fn a_permit_that_is_taken_again_counts_once(subject: StoreUnderTest<impl Store>) {
    let line = jobs(2);
    assert!(subject.retake(&line, 1).await, "it was not held: it is taken");
    assert!(subject.acquire(&line, 2).await);
    for _ in 0..3 {
        assert!(subject.retake(&line, 1).await, "it is held: it is prolonged");
    }
    assert_eq!(subject.left("ann", at_once(2)).await, 0);
    subject.wait(JUST_BEFORE);
    assert!(subject.retake(&line, 1).await);
    subject.wait(MICROSECOND);
    assert!(subject.acquire(&line, 3).await, "the other one has ended");
    assert!(!subject.retake(&line, 2).await, "and there is no place for it any more");
    assert!(subject.release(&line, 1).await);
    assert!(subject.retake(&line, 2).await);
}

/// The user and the whole tenant: a permit of both, or of none.
pub async fn permits_across_keys_are_taken_together_or_not_at_all(subject: StoreUnderTest<impl Store>) {
    let chain = |user| [(user, "own", at_once(2), 1), ("everybody", "all", at_once(3), 1)];
    let ids = [("ann", 1), ("ann", 2), ("bob", 3)];
    for (user, id) in ids {
        assert!(subject.acquire(&chain(user), id).await);
    }
    assert!(!subject.acquire(&chain("bob"), 4).await);
    assert_eq!(subject.peek_chain(&[chain("bob")[0]]).await.remaining(), 1, "nothing was taken");
    assert!(subject.renew(&chain("ann"), 1).await);
    assert!(!subject.renew(&chain("bob"), 1).await, "it is not held by both");
    for (user, id) in ids {
        assert!(subject.release(&chain(user), id).await);
    }
    assert_eq!(subject.peek_chain(&[chain("bob")[1]]).await.remaining(), 3);
}

/// A question that cannot hold a permit asks for a place and takes none.
pub async fn what_takes_no_permit_takes_no_place(subject: StoreUnderTest<impl Store>) {
    let limit = at_once(1);
    for _ in 0..3 {
        assert!(subject.spend("ann", limit, 1).await.allowed());
        assert!(subject.peek("ann", limit, 1).await.allowed());
        subject.charge(&jobs(1)).await;
        subject.refund("ann", limit, 1).await;
    }
    assert!(subject.acquire(&jobs(1), 1).await);
    subject.refund("ann", limit, 1).await;
    assert!(!subject.spend("ann", limit, 1).await.allowed());
    assert!(!subject.peek("ann", limit, 1).await.allowed());
    assert!(!subject.acquire(&jobs(1), 2).await);
}

/// An operator frees the places of a key.
pub async fn a_reset_frees_all_permits(subject: StoreUnderTest<impl Store>) {
    let line = jobs(2);
    for id in [1, 2] {
        assert!(subject.acquire(&line, id).await);
    }
    subject.reset("ann", at_once(2)).await;
    assert_eq!(subject.left("ann", at_once(2)).await, 2);
    assert!(!subject.renew(&line, 1).await);
    assert!(subject.acquire(&line, 3).await);
}

/// An operator sees who holds what since when, and until when.
pub async fn holders_are_reported_with_the_time_at_which_they_end(subject: StoreUnderTest<impl Inspect>) {
    let rate = built(Limit::per_day(1).burst(10));
    let chain = [("ann", "p/rate", rate, 1), ("ann", "p/jobs", at_once(3), 1)];
    let started = subject.now();
    assert!(subject.acquire(&chain, 1).await);
    subject.wait(Duration::from_secs(20));
    assert!(subject.acquire(&chain, 2).await);
    assert_eq!(subject.holders(&chain).await, [vec![], vec![(1, started + HOLD), (2, subject.now() + HOLD)]]);
    assert!(subject.renew(&chain[1..], 1).await);
    subject.wait(Duration::from_secs(25));
    let until = subject.now() + Duration::from_secs(5);
    assert_eq!(subject.holders(&chain).await[1], [(1, until), (2, until)]);
    assert!(subject.release(&chain[1..], 1).await);
    subject.wait(HOLD);
    assert_eq!(subject.holders(&chain).await, [vec![], vec![]]);
}

/// A holder keeps its permit when the limit shrinks, and no other caller gets one.
pub async fn a_limit_that_shrinks_takes_no_permit_from_its_holder(subject: StoreUnderTest<impl Store>) {
    for id in 1..=4 {
        assert!(subject.acquire(&jobs(4), id).await);
    }
    assert_eq!(subject.left("ann", at_once(2)).await, 0);
    assert!(subject.renew(&jobs(2), 1).await);
    for id in 1..=2 {
        assert!(subject.release(&jobs(2), id).await);
        assert!(!subject.acquire(&jobs(2), 5).await);
    }
    assert!(subject.release(&jobs(2), 3).await);
    assert!(subject.acquire(&jobs(2), 5).await);
}

/// A clock that steps back neither ends permits nor holds places for longer than the hold time.
pub async fn a_clock_that_steps_back_holds_no_place_for_ever(subject: StoreUnderTest<impl Store>) {
    subject.wait(Duration::from_secs(7_200));
    let line = jobs(1);
    assert!(subject.acquire(&line, 1).await);
    subject.clock.step_back(Duration::from_secs(3_600));
    assert!(!subject.acquire(&line, 2).await, "it is still held");
    subject.wait(JUST_BEFORE);
    assert!(!subject.acquire(&line, 2).await);
    subject.wait(MICROSECOND);
    assert!(subject.acquire(&line, 2).await);
}

/// However many ask at once, no more hold a permit than may.
pub async fn of_many_that_ask_for_a_permit_at_once_as_many_get_one_as_may(
    subject: StoreUnderTest<impl Store + 'static>,
) {
    for round in 0..20_u128 {
        let acquire = |id: u128| {
            let store = std::sync::Arc::clone(&subject.store);
            tokio::spawn(async move {
                let (charges, id) = (super::charges(&jobs(3)), permit_id(100 * round + id));
                let outcome = store.permit(&charges, &id, PermitStep::Acquire).await;
                (outcome.expect("the store answers").allowed, id)
            })
        };
        let answers = join_all((0..16).map(acquire)).await;
        let held: Vec<_> = (answers.into_iter())
            .filter_map(|answer| {
                let (allowed, id) = answer.expect("the task ends");
                allowed.then_some(id)
            })
            .collect();
        assert_eq!(held.len(), 3);
        for id in held {
            let line = super::charges(&jobs(3));
            assert!(
                subject
                    .store
                    .permit(&line, &id, PermitStep::Release(spile_core::SpendTime::Unknown))
                    .await
                    .expect("it answers")
                    .allowed
            );
        }
    }
}

/// The id with this number.
pub(crate) fn permit_id(number: u128) -> PermitId {
    PermitId::new(spile_core::Micros::from_secs(1), Duration::ZERO, number, "test").expect("a sound holder")
}
