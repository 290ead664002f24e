//! A store whose calls are timed and whose failures are counted.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use metrics::{Histogram, histogram};
use pin_project_lite::pin_project;
use spile_core::{
    Answer, Charges, Clock, Cost, HeldPermit, Inspect, Kept, Key, Micros, NamedLimit, Operation, Reply,
    Spent, Store, StoreError, SystemClock,
};

use super::names::STORE_DURATION;
use crate::watch::Watch;

/// The time between two timed calls of one thread, for a store that answers within nanoseconds: reading the clock costs
/// as much as the call.
const APART_US: u64 = 250;
/// At least one of this many calls is timed, so that a store that becomes slow is noticed soon.
const LONGEST_STRIDE: u64 = 1_024;

thread_local! {
    /// How many calls this thread skips before it times the next one.
    static TO_PASS: Cell<u32> = const { Cell::new(0) };
    /// One of how many calls this thread times, and when it last timed one.
    static PACE: Cell<(u64, Micros)> = const { Cell::new((1, Micros::new(0))) };
}

/// Which calls are timed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TimedCalls {
    EveryCall,
    Sampled,
    None,
}

/// Wraps a store and records how long its calls take, as `ratelimit_store_duration_seconds{op}` and on the dashboard, and
/// how many fail, as `ratelimit_store_failures_total{op,reason}`.
#[derive(Clone, Debug)]
pub struct TimedStore<S> {
    store: S,
    watch: Watch,
    clock: SystemClock,
    pace: TimedCalls,
    spend: Histogram,
    peek: Histogram,
    refund: Histogram,
    reset: Histogram,
    permit: Histogram,
}

impl<S: Store> TimedStore<S> {
    /// Times every call: for a store behind a network.
    pub fn every_call(store: S, watch: Watch) -> Self {
        Self::new(store, watch, TimedCalls::EveryCall)
    }

    /// Times every call while they are few, and one of up to 1,024 while they are many: for a store in this process.
    pub fn sampled(store: S, watch: Watch) -> Self {
        Self::new(store, watch, TimedCalls::Sampled)
    }

    /// Times no call and counts no failure. The series exist and stay at zero.
    pub fn untimed(store: S, watch: Watch) -> Self {
        Self::new(store, watch, TimedCalls::None)
    }

    /// The store itself.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    fn new(store: S, watch: Watch, pace: TimedCalls) -> Self {
        let op = |op: &'static str| watch.register(|| histogram!(STORE_DURATION, "op" => op));
        let [spend, peek, refund, reset, permit] = ["spend", "peek", "refund", "reset", "permit"].map(op);
        Self { store, watch, clock: SystemClock::new(), pace, spend, peek, refund, reset, permit }
    }

    fn histogram(&self, operation: &Operation<'_>) -> &Histogram {
        match operation {
            Operation::Spend | Operation::SpendUpTo | Operation::Charge | Operation::Reserve(_) => {
                &self.spend
            }
            Operation::Peek => &self.peek,
            Operation::Refund { .. } | Operation::Settle(..) => &self.refund,
            Operation::Permit(..) => &self.permit,
            Operation::Reset => &self.reset,
        }
    }

    /// Records the duration of a call, unless it was not sent, and counts it if it failed.
    #[inline]
    fn end(
        &self,
        operation: &Operation<'_>,
        timing: Option<CallTimer<'_, S>>,
        answer: &Result<Reply, StoreError>,
    ) {
        let Err(why) = answer else { return };
        if self.pace != TimedCalls::None {
            self.watch.count_failed_call(operation, why);
        }
        if !why.was_asked() {
            // Forgetting the timer skips its `Drop`, which would record. It only borrows, so nothing leaks.
            std::mem::forget(timing);
        }
    }

    /// Records the duration only if the store has spent. Otherwise [`Store::call`] follows, which is timed itself.
    #[cold]
    #[inline(never)]
    fn timed_spend_one(
        &self,
        timing: CallTimer<'_, S>,
        key: Key<'_>,
        limit: &NamedLimit,
        cost: Cost,
    ) -> Option<Spent> {
        let spent = self.store.spend_one(key, limit, cost);
        if spent.is_none() {
            std::mem::forget(timing);
        }
        spent
    }

    /// A timer for this call. `None` if this call is not timed.
    #[inline]
    fn timing(&self, operation: &Operation<'_>) -> Option<CallTimer<'_, S>> {
        let to_pass = TO_PASS.get();
        match self.pace {
            TimedCalls::None => return None,
            TimedCalls::Sampled if to_pass > 0 => {
                TO_PASS.set(to_pass - 1);
                return None;
            }
            TimedCalls::Sampled | TimedCalls::EveryCall => {}
        }
        let started = self.clock.now();
        // A store whose every call is timed does not change the pace of sampled stores.
        if self.pace == TimedCalls::Sampled {
            TO_PASS.set(next_stride(started) - 1);
        }
        Some(CallTimer { store: self, op: self.histogram(operation), started })
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
    /// A call that is timed from its first poll.
    struct TimedCall<'a, F, S> {
        #[pin]
        call: F,
        store: &'a TimedStore<S>,
        operation: Operation<'a>,
        timing: Option<CallTimer<'a, S>>,
        is_polled: bool,
    }
}

impl<F, S: Store> Future for TimedCall<'_, F, S>
where
    F: Future<Output = Result<Reply, StoreError>>,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !std::mem::replace(this.is_polled, true) {
            *this.timing = this.store.timing(this.operation);
        }
        let answer = ready!(this.call.poll(cx));
        this.store.end(this.operation, this.timing.take(), &answer);
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
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        let timing = self.timing(&operation);
        match self.store.call(operation, charges) {
            Answer::Now(reply) => {
                self.end(&operation, timing, &reply);
                Answer::Now(reply)
            }
            // The time until the first poll is the caller's.
            Answer::Later(call) => {
                std::mem::forget(timing);
                Answer::Later(TimedCall { call, store: self, operation, timing: None, is_polled: false })
            }
        }
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn timeout(&self) -> Option<Duration> {
        self.store.timeout()
    }

    #[inline]
    fn spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        match self.timing(&Operation::Spend) {
            None => self.store.spend_one(key, limit, cost),
            Some(timing) => self.timed_spend_one(timing, key, limit, cost),
        }
    }
}

impl<S: Inspect> Inspect for TimedStore<S> {
    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send {
        self.store.holders(charges)
    }

    fn kept(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Vec<Kept>, StoreError>> + Send {
        self.store.kept(charges)
    }
}
