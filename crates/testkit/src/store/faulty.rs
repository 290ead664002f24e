//! A store in front of another, whose calls fail, hang or take their time as a test says.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{
    ChargeOutcome, Charges, Cost, FakeClock, HeldPermit, Outcome, PartialOutcome, PermitId, PermitStep,
    RefundId, RefundOutcome, ReservationMarker, SettleOutcome, Store, StoreError,
};

use super::ModelStore;

/// What happens to one call of a store.
#[derive(Clone, Debug)]
pub enum CallFault {
    /// The store behind it answers.
    None,
    /// The store behind it answers, after a while.
    Delay(Duration),
    /// No answer comes.
    Hang,
    /// The store behind it is not asked.
    Fail(StoreError),
    /// The store behind it is asked, and its answer is lost.
    LoseAnswer(StoreError),
}

/// Counts the calls of a store, and decides what happens to each. It never answers at once.
pub struct FaultyStore<S> {
    store: S,
    calls: AtomicU32,
    fault: Mutex<Box<dyn Fn(u32) -> CallFault + Send + Sync>>,
}

impl<S> FaultyStore<S> {
    /// A store whose call number `n`, from 0, meets `fault(n)`.
    pub fn new(store: S, fault: impl Fn(u32) -> CallFault + Send + Sync + 'static) -> Self {
        Self { store, calls: AtomicU32::new(0), fault: Mutex::new(Box::new(fault)) }
    }

    /// From now on each call meets this fault.
    pub fn set_fault(&self, fault: CallFault) {
        *self.fault.lock() = Box::new(move |_| fault.clone());
    }

    /// How often it was called.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn call<T, F>(&self, ask: impl FnOnce() -> F + Send) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let fault = self.fault.lock()(call);
        match fault {
            CallFault::None => ask().await,
            CallFault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                ask().await
            }
            CallFault::Hang => pending().await,
            CallFault::Fail(error) => Err(error),
            CallFault::LoseAnswer(error) => {
                ask().await?;
                Err(error)
            }
        }
    }
}

impl FaultyStore<ModelStore<FakeClock>> {
    /// A store that is never reached: each call meets the same fault.
    pub fn always(fault: CallFault) -> Self {
        Self::new(ModelStore::new(FakeClock::default()), move |_| fault.clone())
    }

    /// A store that is down, and known to be.
    pub fn down() -> Self {
        Self::always(CallFault::Fail(StoreError::BreakerOpen))
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore")
            .field("store", &self.store)
            .field("calls", &self.calls())
            .finish_non_exhaustive()
    }
}

impl<S: Store> Store for FaultyStore<S> {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.call(|| self.store.spend(charges)).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.call(|| self.store.peek(charges)).await
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        self.call(|| self.store.spend_up_to(charges)).await
    }

    async fn charge(&self, charges: &Charges<'_>) -> Result<ChargeOutcome, StoreError> {
        self.call(|| self.store.charge(charges)).await
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.call(|| self.store.refund(charges)).await
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        self.call(|| self.store.refund_once(charges, id)).await
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        self.call(|| self.store.settle(charges, marker, actual)).await
    }

    async fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> Result<Outcome, StoreError> {
        self.call(|| self.store.permit(charges, id, step)).await
    }

    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        self.call(|| self.store.holders(charges)).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.call(|| self.store.reset(charges)).await
    }
}
