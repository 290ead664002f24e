//! A typed method for each operation.

use crate::{
    ChargeOutcome, Charges, Cost, Operation, Outcome, PartialOutcome, PermitId, PermitStep, RefundId,
    RefundOutcome, Reply, ReservationMarker, SettleOutcome, Store, StoreError,
};

/// A typed method for each [`Operation`].
pub trait StoreExt: Store {
    /// Runs an operation and waits for the reply.
    fn ask<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send + 'a {
        // The store is called when the future is polled, so that a future which is dropped before that has spent nothing.
        async move { self.call(operation, charges).await }
    }

    /// See [`Operation::Spend`].
    fn spend<'a>(
        &'a self,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Spend, charges).await.map(Reply::into_outcome) }
    }

    /// See [`Operation::Peek`].
    fn peek<'a>(
        &'a self,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Peek, charges).await.map(Reply::into_outcome) }
    }

    /// See [`Operation::SpendUpTo`].
    fn spend_up_to<'a>(
        &'a self,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<PartialOutcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::SpendUpTo, charges).await.map(PartialOutcome::from) }
    }

    /// See [`Operation::Charge`].
    fn charge<'a>(
        &'a self,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<ChargeOutcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Charge, charges).await.map(ChargeOutcome::from) }
    }

    /// See [`Operation::Refund`].
    fn refund<'a>(
        &'a self,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Refund(None), charges).await.map(Reply::into_outcome) }
    }

    /// See [`Operation::Refund`].
    fn refund_once<'a>(
        &'a self,
        charges: &'a Charges<'a>,
        id: RefundId<'a>,
    ) -> impl Future<Output = Result<RefundOutcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Refund(Some(id)), charges).await.map(RefundOutcome::from) }
    }

    /// See [`Operation::Settle`].
    fn settle<'a>(
        &'a self,
        charges: &'a Charges<'a>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> impl Future<Output = Result<SettleOutcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Settle(marker, actual), charges).await.map(SettleOutcome::from) }
    }

    /// See [`Operation::Permit`].
    fn permit<'a>(
        &'a self,
        charges: &'a Charges<'a>,
        id: &'a PermitId,
        step: PermitStep,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Permit(id, step), charges).await.map(Reply::into_outcome) }
    }

    /// See [`Operation::Reset`].
    fn reset<'a>(
        &'a self,
        charges: &'a Charges<'a>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'a {
        async move { self.call(Operation::Reset, charges).await.map(drop) }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}
