//! The properties of wrapped stores, and the consequences of errors.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use spile_core::{
    Answer, Bucket, BucketSlot, Charge, Charges, Cost, EitherStore, FailureReason, Key, Limit, LimitName,
    Micros, NamedLimit, OneOrMany, Operation, PermitId, PermitSet, PermitStep, Reply, Spent, Store,
    StoreError, StoreExt, Verdict, permit,
};

const NOW: Micros = Micros::from_secs(1_700_000_000);

/// A store that answers at once, or never.
#[derive(Clone, Copy)]
struct Stub {
    at_once: bool,
}

impl Store for Stub {
    fn call<'a>(
        &'a self,
        _: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        let full = Bucket::full(charges[0].limit().limit(), NOW);
        if self.at_once {
            Answer::Now(Ok(Reply::new(Verdict::Done, NOW, OneOrMany::one(full))))
        } else {
            Answer::Later(async { Err(StoreError::BreakerOpen) })
        }
    }

    fn is_shared(&self) -> bool {
        !self.at_once
    }

    fn spend_one(&self, _: Key<'_>, limit: &NamedLimit, _: Cost) -> Option<Spent> {
        self.at_once.then(|| Spent { allowed: true, at: NOW, bucket: Bucket::full(limit.limit(), NOW) })
    }
}

/// Polls a future that must be ready at once.
fn polled<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it has to wait"),
    }
}

/// The properties that a store reports, and whether it answers at once.
fn described(store: &impl Store) -> (bool, bool, bool, bool) {
    let limit = NamedLimit::new(LimitName::new("a").unwrap(), Limit::per_second(1).build().unwrap());
    let charges = Charges::one(Key::new("ann").unwrap(), &limit, Cost::ONE).unwrap();
    let at_once = matches!(store.call(Operation::Spend, &charges), Answer::Now(Ok(_)));
    let one = store.spend_one(charges[0].key(), &limit, Cost::ONE).is_some();
    (at_once, polled(store.spend(&charges)).is_ok(), one, store.is_shared())
}

#[test]
fn a_wrapped_store_answers_as_the_store_does() {
    for at_once in [true, false] {
        let store = Stub { at_once };
        let expected = (at_once, at_once, at_once, !at_once);
        assert_eq!(described(&store), expected);
        assert_eq!(described(&Arc::new(store)), expected);
        assert_eq!(described(&EitherStore::<Stub, Stub>::Embedded(store)), expected);
        assert_eq!(described(&EitherStore::<Stub, Stub>::Shared(store)), expected);
    }
}

/// A retry of a call that may have run charges twice, and counting a call that was not sent blames the store.
#[test]
fn an_error_says_whether_the_step_may_have_run_and_whether_the_store_was_asked() {
    let unavailable = |may_have_run| StoreError::Unavailable { message: "gone".into(), may_have_run };
    let table = [
        (unavailable(true), true, true, FailureReason::RedisError),
        (unavailable(false), false, true, FailureReason::RedisError),
        (StoreError::TimedOut(Duration::from_millis(50)), true, true, FailureReason::Timeout),
        (StoreError::BadResponse("?".into()), true, true, FailureReason::BadResponse),
        (StoreError::BadTypes("list".into()), false, true, FailureReason::BadTypes),
        (StoreError::BreakerOpen, false, false, FailureReason::BreakerOpen),
        (StoreError::Overloaded(7), false, false, FailureReason::Overloaded),
    ];
    for (error, may_have_run, was_asked, reason) in table {
        let said = (error.may_have_run(), error.was_asked(), error.reason());
        assert_eq!(said, (may_have_run, was_asked, reason), "{error}");
    }
}

#[test]
fn times_are_microseconds_and_stop_at_their_ends() {
    assert_eq!((Micros::from_secs(3).get(), Micros::new(3_000_000)), (3_000_000, Micros::from_secs(3)));
    assert_eq!([0, 1, 1_000_000, 1_000_001].map(|us| Micros::new(us).epoch_secs_ceil()), [0, 1, 1, 2]);
    assert_eq!((NOW - Duration::MAX, NOW + Duration::MAX), (Micros::new(0), Micros::new(u64::MAX)));
    assert_eq!(NOW + Duration::from_micros(5) - Duration::from_micros(2), NOW.plus_us(3));
}

/// A stranger's store that keeps permits somewhere else restores them by collecting what it kept.
#[test]
fn a_set_of_permits_is_restored_from_those_that_it_held() {
    let limit = Limit::concurrent(2).build().expect("a concurrency");
    let name = LimitName::new("jobs").expect("a name");
    let charge = Charge::new(Key::new("ann").expect("a key"), NamedLimit::new(name, limit), Cost::ONE);
    let charges = Charges::from(charge.expect("one covers one"));
    let step = |set: &mut PermitSet, number, step, now| {
        let id = PermitId::new(Micros::from_secs(1), Duration::ZERO, number, "job").expect("a holder");
        let mut slots = [BucketSlot::default()];
        permit(&charges, &id, step, &mut slots, std::slice::from_mut(set), now).verdict
    };
    let (now, mut held) = (Micros::from_secs(1_000), PermitSet::default());
    for number in 0..2 {
        assert_eq!(step(&mut held, number, PermitStep::Acquire, now), Verdict::Done);
    }
    let mut restored: PermitSet = held.all().iter().cloned().collect();
    assert_eq!(restored, held);
    assert_eq!(step(&mut restored, 2, PermitStep::Acquire, now), Verdict::Denied);
    assert_eq!(step(&mut restored, 1, PermitStep::Renew, now), Verdict::Done);
    assert_eq!(
        step(&mut restored, 0, PermitStep::Release(spile_core::SpendTime::Unknown), now),
        Verdict::Done
    );
    assert_eq!(step(&mut restored, 2, PermitStep::Acquire, now), Verdict::Done);
}
