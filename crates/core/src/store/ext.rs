//! A typed method for each operation.

use crate::{
    ChargeOutcome, Charges, Cost, Operation, Outcome, PartialOutcome, PermitId, PermitStep, RefundId,
    RefundOutcome, Reply, ReservationId, SettleOutcome, SpendTime, Store, StoreError,
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
        spent: SpendTime,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send + 'a {
        let refund = Operation::Refund { spent, once: None };
        async move { self.call(refund, charges).await.map(Reply::into_outcome) }
    }

    /// See [`Operation::Refund`].
    fn refund_once<'a>(
        &'a self,
        charges: &'a Charges<'a>,
        spent: SpendTime,
        id: RefundId<'a>,
    ) -> impl Future<Output = Result<RefundOutcome, StoreError>> + Send + 'a {
        let refund = Operation::Refund { spent, once: Some(id) };
        async move { self.call(refund, charges).await.map(RefundOutcome::from) }
    }

    /// See [`Operation::Reserve`].
    fn reserve<'a>(
        &'a self,
        charges: &'a Charges<'a>,
        id: ReservationId,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Reserve(id), charges).await.map(Reply::into_outcome) }
    }

    /// See [`Operation::Settle`].
    fn settle<'a>(
        &'a self,
        charges: &'a Charges<'a>,
        id: ReservationId,
        costs: &'a [Cost],
    ) -> impl Future<Output = Result<SettleOutcome, StoreError>> + Send + 'a {
        async move { self.call(Operation::Settle(id, costs), charges).await.map(SettleOutcome::from) }
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
