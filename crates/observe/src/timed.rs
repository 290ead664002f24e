//! A store with its calls timed.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use metrics::{Histogram, histogram};
use pin_project_lite::pin_project;
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

    #[cold]
    fn timed_at_once(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let started = self.clock.now();
        let answer = self.store.spend_at_once(charges);
        if answer.is_some() {
            drop(Timing { store: self, op: &self.spend, started });
            TO_PASS.set(self.stride - 1);
        }
        answer
    }

    #[inline]
    fn timed<'a, F: Future>(&'a self, op: &'a Histogram, call: F) -> Timed<'a, F, S> {
        let timing = self.is_timed().then(|| Timing { store: self, op, started: self.clock.now() });
        Timed { call, timing }
    }
}

pin_project! {
    /// A call, and what notes its time. By hand: an `async fn` around a call that takes nanoseconds would double it.
    struct Timed<'a, F, S> {
        #[pin]
        call: F,
        timing: Option<Timing<'a, S>>,
    }
}

impl<F: Future, S> Future for Timed<'_, F, S> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.call.poll(cx));
        drop(this.timing.take());
        Poll::Ready(answer)
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
    #[inline]
    fn spend(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.spend, self.store.spend(charges))
    }

    #[inline]
    fn spend_at_once(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let to_pass = TO_PASS.get();
        if to_pass == 0 {
            return self.timed_at_once(charges);
        }
        // Handed straight on: to look at the answer would mean to copy it. A store that answers later is counted again
        // then, and so timed twice as often.
        TO_PASS.set(to_pass - 1);
        self.store.spend_at_once(charges)
    }

    fn peek(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.peek, self.store.peek(charges))
    }

    fn spend_up_to(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Grant, StoreError>> + Send {
        self.timed(&self.spend, self.store.spend_up_to(charges))
    }

    fn refund(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.refund, self.store.refund(charges))
    }

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.timed(&self.reset, self.store.reset(charges))
    }
}
