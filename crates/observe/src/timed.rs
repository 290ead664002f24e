//! A store with its calls timed.

use std::cell::Cell;

use metrics::{Histogram, histogram};
use spile_core::{Charges, Clock, Grant, Micros, Outcome, Store, StoreError, SystemClock};

use crate::names::STORE_DURATION;
use crate::watch::Watch;

/// Of so many calls of a store that answers within nanoseconds, one is timed: the clock costs as much as the call.
const STRIDE: u32 = 256;

thread_local! {
    /// Calls that this thread lets pass before it times the next.
    static TO_PASS: Cell<u32> = const { Cell::new(0) };
}

/// Any store, with how long it takes as `ratelimit_store_duration_seconds{op}` and on the dashboard.
#[derive(Clone, Debug)]
pub struct TimedStore<S> {
    store: S,
    watch: Watch,
    clock: SystemClock,
    stride: u32,
    spend: Histogram,
    peek: Histogram,
    refund: Histogram,
    reset: Histogram,
}

impl<S: Store> TimedStore<S> {
    /// Times every call: for a store behind a network.
    pub fn every_call(store: S, watch: Watch) -> Self {
        Self::new(store, watch, 1)
    }

    /// Times one call of 256: for a store in this process.
    pub fn sampled(store: S, watch: Watch) -> Self {
        Self::new(store, watch, STRIDE)
    }

    /// The store itself.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    fn new(store: S, watch: Watch, stride: u32) -> Self {
        let op = |op: &'static str| watch.register(|| histogram!(STORE_DURATION, "op" => op));
        let [spend, peek, refund, reset] = ["spend", "peek", "refund", "reset"].map(op);
        Self { store, watch, clock: SystemClock::new(), stride, spend, peek, refund, reset }
    }

    #[inline]
    fn is_timed(&self) -> bool {
        let to_pass = TO_PASS.get();
        TO_PASS.set(if to_pass == 0 { self.stride - 1 } else { to_pass - 1 });
        to_pass == 0
    }

    async fn timed<T>(&self, op: &Histogram, call: impl Future<Output = T>) -> T {
        if !self.is_timed() {
            return call.await;
        }
        let _until_dropped = Timing { store: self, op, started: self.clock.now() };
        call.await
    }
}

/// Notes the time when dropped, so that a call which its caller gave up on counts too.
struct Timing<'a, S> {
    store: &'a TimedStore<S>,
    op: &'a Histogram,
    started: Micros,
}

impl<S> Drop for Timing<'_, S> {
    fn drop(&mut self) {
        let us = self.store.clock.now().since_us(self.started);
        self.op.record(us as f64 / 1e6);
        self.store.watch.store_took(us);
    }
}

impl<S: Store> Store for TimedStore<S> {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.timed(&self.spend, self.store.spend(charges)).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.timed(&self.peek, self.store.peek(charges)).await
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<Grant, StoreError> {
        self.timed(&self.spend, self.store.spend_up_to(charges)).await
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.timed(&self.refund, self.store.refund(charges)).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.timed(&self.reset, self.store.reset(charges)).await
    }
}
