//! A store in front of another, whose calls fail, hang or take their time as a test says.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{
    Answer, Charges, FakeClock, HeldPermit, Inspect, Kept, Operation, Reply, Store, StoreError, StoreExt,
};

use super::ModelStore;

/// The fault that one call of a store meets.
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

    async fn meet<T, F>(&self, ask: impl FnOnce() -> F + Send) -> Result<T, StoreError>
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
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(self.meet(move || self.store.ask(operation, charges)))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl<S: Inspect> Inspect for FaultyStore<S> {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        self.meet(|| self.store.holders(charges)).await
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        self.meet(|| self.store.kept(charges)).await
    }
}
