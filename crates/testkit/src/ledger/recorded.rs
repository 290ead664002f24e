//! A store whose answers are written down.

use spile_core::{
    ChargeOutcome, Charges, Cost, HeldPermit, Outcome, PartialOutcome, PermitId, PermitStep, RefundId,
    RefundOutcome, ReservationMarker, SettleOutcome, Store, StoreError,
};

use super::Ledger;

/// Forwards every call to the store under test, and records what it admitted.
///
/// A failed call is not recorded: if it did run, its tokens were admitted to no caller, which breaks no bound.
#[derive(Clone, Debug)]
pub struct Recorded<S> {
    store: S,
    ledger: Ledger,
}

impl<S> Recorded<S> {
    /// `store`, with its answers entered in `ledger`.
    pub const fn new(store: S, ledger: Ledger) -> Self {
        Self { store, ledger }
    }

    /// The store itself.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Store> Store for Recorded<S> {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        let outcome = self.store.spend(charges).await?;
        for charge in charges.iter() {
            let tokens = if outcome.allowed { charge.cost().get() } else { 0 };
            self.ledger.admitted(charge, tokens, outcome.at);
        }
        Ok(outcome)
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        let grant = self.store.spend_up_to(charges).await?;
        for charge in charges.iter() {
            self.ledger.admitted(charge, grant.tokens, grant.outcome.at);
        }
        Ok(grant)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.store.peek(charges).await
    }

    async fn charge(&self, charges: &Charges<'_>) -> Result<ChargeOutcome, StoreError> {
        self.store.charge(charges).await
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.store.refund(charges).await
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        self.store.refund_once(charges, id).await
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        self.store.settle(charges, marker, actual).await
    }

    async fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> Result<Outcome, StoreError> {
        self.store.permit(charges, id, step).await
    }

    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        self.store.holders(charges).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.store.reset(charges).await
    }
}
