//! Instances and the store between them, each with a clock of its own, and calls that take time on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Answer, Charges, Clock, FakeClock, Micros, Operation, Reply, Store, StoreError, StoreExt};
use spile_testkit::store::ModelStore;

/// How long a call is on its way to the store, and its answer on the way back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trip {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
}

/// The clocks of all machines. They go equally fast and tell different times.
#[derive(Clone, Debug)]
pub(crate) struct Clocks(Arc<Vec<FakeClock>>);

impl Clocks {
    /// This many clocks, each an hour ahead of the one before it.
    pub(crate) fn apart(count: u64) -> Self {
        let clock = |hour| FakeClock::at(Micros::from_secs(1_000_000 + 3_600 * hour));
        Self(Arc::new((0..count).map(clock).collect()))
    }

    pub(crate) fn of(&self, machine: usize) -> FakeClock {
        self.0[machine].clone()
    }

    pub(crate) fn advance(&self, by: Duration) {
        for clock in self.0.iter() {
            clock.advance(by);
        }
    }
}

/// A store on the first machine, as another machine sees it. It decides after the call has arrived.
#[derive(Clone, Debug)]
pub(crate) struct RemoteStore {
    pub(crate) model: Arc<ModelStore<FakeClock>>,
    clocks: Clocks,
    trip: Arc<Mutex<Trip>>,
    calls: Arc<Mutex<u32>>,
    is_down: Arc<AtomicBool>,
    is_hanging: Arc<AtomicBool>,
}

impl RemoteStore {
    pub(crate) fn new(clocks: &Clocks) -> Self {
        Self {
            model: Arc::new(ModelStore::new(clocks.of(0))),
            clocks: clocks.clone(),
            trip: Arc::default(),
            calls: Arc::default(),
            is_down: Arc::default(),
            is_hanging: Arc::default(),
        }
    }

    /// How long the next calls take.
    pub(crate) fn takes(&self, trip: Trip) {
        *self.trip.lock() = trip;
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// No answer comes.
    pub(crate) fn set_hanging(&self, is_hanging: bool) {
        self.is_hanging.store(is_hanging, Ordering::Relaxed);
    }

    pub(crate) fn calls(&self) -> u32 {
        *self.calls.lock()
    }

    async fn travel<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        *self.calls.lock() += 1;
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::BreakerOpen);
        }
        if self.is_hanging.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let trip = *self.trip.lock();
        self.clocks.advance(trip.there);
        let answer = answer.await;
        self.clocks.advance(trip.back);
        answer
    }
}

impl Store for RemoteStore {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(self.travel(self.model.ask(operation, charges)))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// The time by the clock of a machine.
pub(crate) fn now(clocks: &Clocks, machine: usize) -> Micros {
    clocks.of(machine).now()
}
