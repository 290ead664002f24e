//! A store whose calls are timed.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use metrics::{Histogram, histogram};
use pin_project_lite::pin_project;
use spile_core::{
    ChargeOutcome, Charges, Clock, Cost, HeldPermit, Micros, Outcome, PartialOutcome, PermitId, PermitStep,
    RefundId, RefundOutcome, ReservationMarker, SettleOutcome, Store, StoreError, SystemClock,
};

use super::names::STORE_DURATION;
use crate::watch::Watch;

/// The time between two timed calls of one thread, for a store that answers within nanoseconds: reading the clock costs
/// as much as the call.
const APART_US: u64 = 250;
/// At least one of so many calls is timed, so that a store that becomes slow is noticed soon.
const LONGEST_STRIDE: u64 = 1_024;

thread_local! {
    /// How many calls this thread skips before it times the next one.
    static TO_PASS: Cell<u32> = const { Cell::new(0) };
    /// One of how many calls this thread times, and when it last timed one.
    static PACE: Cell<(u64, Micros)> = const { Cell::new((1, Micros::new(0))) };
}

/// Wraps a store and records how long its calls take, as `ratelimit_store_duration_seconds{op}` and on the dashboard.
#[derive(Clone, Debug)]
pub struct TimedStore<S> {
    store: S,
    watch: Watch,
    clock: SystemClock,
    every_call: bool,
    spend: Histogram,
    peek: Histogram,
    refund: Histogram,
    reset: Histogram,
    permit: Histogram,
}

impl<S: Store> TimedStore<S> {
    /// Times every call: for a store behind a network.
    pub fn every_call(store: S, watch: Watch) -> Self {
        Self::new(store, watch, true)
    }

    /// Times every call while they are few, and one of up to 1,024 while they are many: for a store in this process.
    pub fn sampled(store: S, watch: Watch) -> Self {
        Self::new(store, watch, false)
    }

    /// The store itself.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    fn new(store: S, watch: Watch, every_call: bool) -> Self {
        let op = |op: &'static str| watch.register(|| histogram!(STORE_DURATION, "op" => op));
        let [spend, peek, refund, reset, permit] = ["spend", "peek", "refund", "reset", "permit"].map(op);
        Self { store, watch, clock: SystemClock::new(), every_call, spend, peek, refund, reset, permit }
    }

    /// Records the call only if it was answered: a store that answers later is timed by the future.
    #[cold]
    #[inline(never)]
    fn timed_at_once(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let started = self.clock.now();
        let answer = self.store.try_spend(charges);
        if let Some(answer) = &answer {
            self.end(Some(self.timing_since(started, &self.spend)), answer);
        }
        answer
    }

    /// Records the duration of a call. A call that was not sent has no duration and is counted apart.
    #[inline]
    fn end<T>(&self, timing: Option<CallTimer<'_, S>>, answer: &Result<T, StoreError>) {
        match answer {
            Err(why) if !why.was_asked() => {
                self.watch.count_unsent_call(why);
                // Forgetting the timer skips its `Drop`, which would record. It only borrows, so that nothing leaks.
                std::mem::forget(timing);
            }
            _ => drop(timing),
        }
    }

    /// A timer for this call. `None` if this call is not timed.
    #[inline]
    fn timing<'a>(&'a self, op: &'a Histogram) -> Option<CallTimer<'a, S>> {
        let to_pass = TO_PASS.get();
        if self.every_call || to_pass == 0 {
            return Some(self.timing_since(self.clock.now(), op));
        }
        TO_PASS.set(to_pass - 1);
        None
    }

    fn timing_since<'a>(&'a self, started: Micros, op: &'a Histogram) -> CallTimer<'a, S> {
        // A store whose every call is timed does not change the pace of sampled stores.
        if !self.every_call {
            TO_PASS.set(next_stride(started) - 1);
        }
        CallTimer { store: self, op, started }
    }

    #[inline]
    fn timed<'a, F: Future>(&'a self, op: &'a Histogram, call: F) -> TimedCall<'a, F, S> {
        TimedCall { call, store: self, timing: self.timing(op) }
    }
}

/// One of how many calls to time next, estimated from the time since the last timed call.
fn next_stride(now: Micros) -> u32 {
    let (stride, last) = PACE.get();
    let apart_us = now.since_us(last).max(1);
    let stride = (stride * APART_US / apart_us).clamp(1, LONGEST_STRIDE);
    PACE.set((stride, now));
    stride as u32
}

pin_project! {
    /// A call and its timer. Written by hand, because an `async fn` would double the time of a call of nanoseconds.
    struct TimedCall<'a, F, S> {
        #[pin]
        call: F,
        store: &'a TimedStore<S>,
        timing: Option<CallTimer<'a, S>>,
    }
}

impl<F, T, S: Store> Future for TimedCall<'_, F, S>
where
    F: Future<Output = Result<T, StoreError>>,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.call.poll(cx));
        this.store.end(this.timing.take(), &answer);
        Poll::Ready(answer)
    }
}

/// Records the duration when it is dropped, so that calls that were cancelled count too.
struct CallTimer<'a, S> {
    store: &'a TimedStore<S>,
    op: &'a Histogram,
    started: Micros,
}

impl<S> Drop for CallTimer<'_, S> {
    fn drop(&mut self) {
        let us = self.store.clock.now().since_us(self.started);
        self.op.record(us as f64 / 1e6);
        self.store.watch.record_store_call(us);
    }
}

impl<S: Store> Store for TimedStore<S> {
    #[inline]
    fn spend(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.spend, self.store.spend(charges))
    }

    #[inline]
    fn try_spend(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let to_pass = TO_PASS.get();
        if self.every_call || to_pass == 0 {
            return self.timed_at_once(charges);
        }
        // Returned directly, because looking at the answer would copy it. For a store that answers later, the future
        // counts the call again, so that such calls are timed twice as often.
        TO_PASS.set(to_pass - 1);
        self.store.try_spend(charges)
    }

    #[inline]
    fn answers_at_once(&self) -> bool {
        self.store.answers_at_once()
    }

    fn peek(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.peek, self.store.peek(charges))
    }

    fn spend_up_to(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<PartialOutcome, StoreError>> + Send {
        self.timed(&self.spend, self.store.spend_up_to(charges))
    }

    fn charge(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<ChargeOutcome, StoreError>> + Send {
        self.timed(&self.spend, self.store.charge(charges))
    }

    fn refund(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.refund, self.store.refund(charges))
    }

    fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> impl Future<Output = Result<RefundOutcome, StoreError>> + Send {
        self.timed(&self.refund, self.store.refund_once(charges, id))
    }

    fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> impl Future<Output = Result<SettleOutcome, StoreError>> + Send {
        self.timed(&self.refund, self.store.settle(charges, marker, actual))
    }

    fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.timed(&self.permit, self.store.permit(charges, id, step))
    }

    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send {
        self.timed(&self.peek, self.store.holders(charges))
    }

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.timed(&self.reset, self.store.reset(charges))
    }
}
