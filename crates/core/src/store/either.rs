//! One of two stores, chosen at run time.

use crate::{
    ChargeOutcome, Charges, Cost, HeldPermit, Key, NamedLimit, Outcome, PartialOutcome, PermitId, PermitStep,
    RefundId, RefundOutcome, ReservationMarker, SettleOutcome, Spent, Store, StoreError,
};

/// One of two stores, chosen at run time: one in this process, or one that several processes share.
///
/// A call costs one branch more than the store itself.
#[derive(Clone, Debug)]
pub enum EitherStore<E, S> {
    /// A store in this process.
    Embedded(E),
    /// A store that several processes share.
    Shared(S),
}

/// Calls a method of whichever store it is.
macro_rules! either {
    ($either:expr, $store:ident => $call:expr) => {
        match $either {
            EitherStore::Embedded($store) => $call,
            EitherStore::Shared($store) => $call,
        }
    };
}

impl<E: Store, S: Store> Store for EitherStore<E, S> {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        either!(self, store => store.spend(charges).await)
    }

    #[inline]
    fn try_spend(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        either!(self, store => store.try_spend(charges))
    }

    #[inline]
    fn try_spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        either!(self, store => store.try_spend_one(key, limit, cost))
    }

    #[inline]
    fn answers_at_once(&self) -> bool {
        either!(self, store => store.answers_at_once())
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        either!(self, store => store.peek(charges).await)
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        either!(self, store => store.spend_up_to(charges).await)
    }

    async fn charge(&self, charges: &Charges<'_>) -> Result<ChargeOutcome, StoreError> {
        either!(self, store => store.charge(charges).await)
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        either!(self, store => store.refund(charges).await)
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        either!(self, store => store.refund_once(charges, id).await)
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        either!(self, store => store.settle(charges, marker, actual).await)
    }

    async fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> Result<Outcome, StoreError> {
        either!(self, store => store.permit(charges, id, step).await)
    }

    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        either!(self, store => store.holders(charges).await)
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        either!(self, store => store.reset(charges).await)
    }
}
