//! What every store says of itself, and what its errors lead to.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Bucket, ChargeOutcome, Charges, Cost, FailureReason, HeldPermit, Key, Limit, LimitName, Micros,
    NamedLimit, OneOrMany, Outcome, PartialOutcome, PermitId, PermitStep, RefundId, RefundOutcome,
    ReservationMarker, SettleOutcome, Store, StoreError,
};

const NOW: Micros = Micros::from_secs(1_700_000_000);

/// Answers at once, or never.
struct Stub {
    at_once: bool,
}

impl Store for Stub {
    async fn spend(&self, _: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    fn try_spend(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let full = Bucket::full(charges[0].limit().limit(), NOW);
        self.at_once.then(|| Ok(Outcome { allowed: true, at: NOW, buckets: OneOrMany::one(full) }))
    }

    fn answers_at_once(&self) -> bool {
        self.at_once
    }

    async fn peek(&self, _: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn spend_up_to(&self, _: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn charge(&self, _: &Charges<'_>) -> Result<ChargeOutcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn refund(&self, _: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn refund_once(&self, _: &Charges<'_>, _: RefundId<'_>) -> Result<RefundOutcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn settle(
        &self,
        _: &Charges<'_>,
        _: ReservationMarker,
        _: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn permit(&self, _: &Charges<'_>, _: &PermitId, _: PermitStep) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn holders(&self, _: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn reset(&self, _: &Charges<'_>) -> Result<(), StoreError> {
        Err(StoreError::BreakerOpen)
    }
}

#[test]
fn a_shared_store_answers_at_once_where_the_store_does() {
    let limit = NamedLimit::new(LimitName::new("a").unwrap(), Limit::per_second(1).build().unwrap());
    let charges = Charges::one(Key::new("ann").unwrap(), &limit, Cost::ONE).unwrap();
    for at_once in [true, false] {
        let store = Arc::new(Stub { at_once });
        assert_eq!(Store::answers_at_once(&store), at_once);
        let answer = Store::try_spend(&store, &charges);
        assert_eq!(answer.map(|answer| answer.expect("it answers").at), at_once.then_some(NOW));
    }
}

/// Who retries what may have run charges twice, and who counts what was not asked blames the store.
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
