//! A typed method for each operation.

use crate::{
    ChargeOutcome, Charges, Cost, Operation, Outcome, PartialOutcome, PermitId, PermitStep, RefundId,
    RefundOutcome, Reply, ReservationId, SettleOutcome, SpendTime, Store, StoreError,
};

/// Defines methods that run an operation and convert the reply.
macro_rules! asks {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $outcome:ty = $operation:expr;)*) => {$(
        $(#[$doc])*
        fn $name<'a>(
            &'a self,
            charges: &'a Charges<'a>,
            $($argument: $type),*
        ) -> impl Future<Output = Result<$outcome, StoreError>> + Send + 'a {
            async move { self.call($operation, charges).await.map(<$outcome>::from) }
        }
    )*};
}

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

    asks! {
        /// See [`Operation::Spend`].
        spend() -> Outcome = Operation::Spend;
        /// See [`Operation::Peek`].
        peek() -> Outcome = Operation::Peek;
        /// See [`Operation::SpendUpTo`].
        spend_up_to() -> PartialOutcome = Operation::SpendUpTo;
        /// See [`Operation::Charge`].
        charge() -> ChargeOutcome = Operation::Charge;
        /// See [`Operation::Refund`].
        refund(spent: SpendTime) -> Outcome = Operation::Refund { spent, once: None };
        /// See [`Operation::Refund`].
        refund_once(spent: SpendTime, id: RefundId<'a>) -> RefundOutcome =
            Operation::Refund { spent, once: Some(id) };
        /// See [`Operation::Reserve`].
        reserve(id: ReservationId) -> Outcome = Operation::Reserve(id);
        /// See [`Operation::Settle`].
        settle(id: ReservationId, costs: &'a [Cost]) -> SettleOutcome = Operation::Settle(id, costs);
        /// See [`Operation::Permit`].
        permit(id: &'a PermitId, step: PermitStep) -> Outcome = Operation::Permit(id, step);
        /// See [`Operation::Reset`].
        reset() -> () = Operation::Reset;
    }
}

impl<S: Store + ?Sized> StoreExt for S {}
