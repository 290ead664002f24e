//! The watch: an observer that counts every decision immediately and defers all other work.

mod builder;
mod snapshot;
mod totals;

use std::sync::{Arc, Weak};

use metrics::counter;
use parking_lot::Mutex;
use spile_core::{Clock, DecisionSource, Key, LimitName, Micros, Operation, StoreError};
use spile_limiter::{DecisionCounts, Observed, Observer, RuleName, Series};
use tokio::sync::{broadcast, watch};

pub use self::builder::WatchBuilder;
pub use self::snapshot::{LocalCounts, Snapshot, StoreOutage, TopLimit};
use self::totals::CounterTotals;
use crate::analytics::{DayRow, HistoryQuery, HistoryRow, MinuteRow};
#[cfg(feature = "webhooks")]
use crate::events::EventLane;
use crate::events::{Event, EventKind, Events};
use crate::metrics::{
    AnswerCounts, CONFIG_RELOADS, DecisionOutcome, FailureCounters, Fingerprints, HealthProbe, Latencies,
    PermitFigures, PermitProbe, Registrar, SeriesTable, StoreHealthTracker, StoreRow, StoreState, describe,
};
use crate::sampling::{KeyDenial, SampledDecisions};

/// The current rates of a snapshot are means over this many seconds.
const RATE_SECONDS: usize = 5;

/// Observes decisions. Give it to a limiter as its observer. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Watch {
    inner: Arc<WatchState>,
}

/// A weak reference to a watch, which does not keep it alive.
pub(crate) struct WeakWatch(Weak<WatchState>);

struct WatchState {
    fingerprints: Fingerprints,
    /// Shared with the limiter, which counts in it.
    counts: Arc<DecisionCounts>,
    failures: FailureCounters,
    latencies: Latencies,
    table: Mutex<SeriesTable>,
    sampled: Mutex<SampledDecisions>,
    /// Locked during a flush, so that only one thread drains counts at a time.
    totals: Mutex<CounterTotals>,
    events: Events,
    health_probe: Mutex<HealthProbe>,
    permit_probe: Mutex<PermitProbe>,
    registrar: Registrar,
    clock: Arc<dyn Clock>,
    began: Micros,
    closed: watch::Sender<bool>,
}

impl Watch {
    /// A builder with defaults.
    pub fn builder() -> WatchBuilder {
        WatchBuilder::new()
    }

    pub(crate) fn new(builder: WatchBuilder) -> Self {
        let WatchBuilder { registrar, clock, keys_shown, health_probe, .. } = builder;
        registrar.register(describe);
        let fingerprints = Fingerprints::default();
        let inner = WatchState {
            counts: Arc::default(),
            failures: FailureCounters::new(&registrar),
            latencies: Latencies::new(),
            table: Mutex::new(SeriesTable::new(registrar.clone(), fingerprints.clone())),
            sampled: Mutex::new(SampledDecisions::new(registrar.clone(), fingerprints.clone(), keys_shown)),
            totals: Mutex::new(CounterTotals::new(StoreHealthTracker::new(&registrar))),
            events: Events::new(Arc::clone(&clock)),
            health_probe: Mutex::new(health_probe),
            permit_probe: Mutex::new(Arc::new(PermitFigures::default)),
            began: clock.now(),
            closed: watch::Sender::new(false),
            fingerprints,
            registrar,
            clock,
        };
        let watch = Self { inner: Arc::new(inner) };
        for result in ["applied", "refused"] {
            watch.count_reload(result, 0);
        }
        watch
    }

    /// Creates the series of a configured rule before rule ids that callers invent can exhaust the bound.
    pub fn register_rule(&self, rule: &str, limit: &LimitName) {
        self.inner.table.lock().register_rule(rule, limit.as_str());
    }

    /// Asks the store for its state once a second, from now on.
    pub fn set_health_probe(&self, ask: HealthProbe) {
        *self.inner.health_probe.lock() = ask;
    }

    /// Asks for the permits of this instance whenever figures are shown, from now on.
    pub fn set_permit_probe(&self, ask: PermitProbe) {
        *self.inner.permit_probe.lock() = ask;
    }

    /// Records how long a call to the store took.
    pub fn record_store_call(&self, us: u64) {
        self.inner.latencies.record(us);
    }

    /// Counts a call to the store that failed, whether or not it was sent.
    pub fn count_failed_call(&self, operation: &Operation<'_>, why: &StoreError) {
        self.inner.failures.count_call(operation, why.reason());
    }

    /// A new configuration is in force.
    pub fn config_reloaded(&self) {
        self.count_reload("applied", 1);
        self.emit(EventKind::ConfigReloaded);
    }

    /// A new configuration is invalid, and the old one stays in force.
    pub fn config_refused(&self, why: impl Into<String>) {
        self.count_reload("refused", 1);
        self.emit(EventKind::ConfigRefused { why: why.into() });
    }

    /// Emits an event to all subscribers.
    pub fn emit(&self, kind: EventKind) {
        self.inner.events.emit(kind);
    }

    /// Subscribes to all events from now on. A subscriber that lags far behind misses some, and receives their number.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// Subscribes to the events of one lane.
    #[cfg(feature = "webhooks")]
    pub(crate) fn subscribe_to(&self, lane: EventLane) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe_to(lane)
    }

    /// The hash that is shown instead of this key, to find a known key in a list.
    pub fn mask(&self, key: Key<'_>) -> String {
        Fingerprints::mask(self.inner.fingerprints.key(key))
    }

    /// The last denials of a key that this watch has sampled, the newest first. Up to 2,048 keys are remembered.
    pub fn denials_of(&self, key: Key<'_>) -> Vec<KeyDenial> {
        let (now, wall) = (self.inner.clock.now(), self.inner.clock.wall());
        self.inner.sampled.lock().denials_of(key, now, wall)
    }

    /// Adds the counts of every thread to the metrics. Call it before metrics are read.
    pub fn flush(&self) {
        self.inner.flush(&mut self.inner.totals.lock());
    }

    /// Ends a second: flushes, checks the health of the store, and moves the windows of levels and latencies.
    pub fn tick(&self) {
        let inner = &*self.inner;
        let health = (Arc::clone(&*inner.health_probe.lock()))();
        let mut totals = inner.totals.lock();
        inner.flush(&mut totals);
        let answers = AnswerCounts { decided: totals.decided.all(), late: inner.failures.late() };
        totals.tick_store(
            inner.clock.wall(),
            &inner.latencies,
            inner.failures.totals(),
            |tracker, storeless| {
                tracker.tick(inner.clock.now(), health, answers, storeless, &inner.events);
            },
        );
        drop(totals);
        let mut sampled = inner.sampled.lock();
        sampled.tick();
        sampled.emit_suppressed(inner.clock.now(), false, &inner.events);
    }

    /// The state of the store as of the last tick, and why it is slow or lost.
    pub fn store_state(&self) -> (StoreState, Option<String>) {
        let totals = self.inner.totals.lock();
        (totals.health.state(), totals.health.message())
    }

    /// The current figures.
    pub fn snapshot(&self) -> Snapshot {
        let inner = &*self.inner;
        let (now, wall) = (inner.clock.now(), inner.clock.wall());
        let permits = (Arc::clone(&*inner.permit_probe.lock()))();
        let mut totals = inner.totals.lock();
        inner.flush(&mut totals);
        let storeless = inner.failures.totals();
        let per_second = totals.rates.recent(RATE_SECONDS);
        let sampled = inner.sampled.lock();
        Snapshot {
            at_ms: wall.get() / 1_000,
            up_ms: now.since_us(inner.began) / 1_000,
            totals: totals.decided,
            degraded: storeless.all(),
            nearby: totals.nearby,
            per_second,
            denial_ratio: per_second.denial_ratio(),
            seconds: totals.rates.seconds(now.get() / 1_000_000, wall.get() / 1_000_000),
            store_latency: totals.latencies.percentiles(),
            store: totals.health.now(),
            store_state: totals.health.state(),
            store_message: totals.health.message(),
            outage: totals.outage.as_ref().map(|outage| StoreOutage {
                since_ms: outage.since_ms,
                decisions: storeless.since(outage.before),
            }),
            keys_shown: sampled.keys_shown(),
            levels: sampled.levels(),
            top_denied: sampled.top_denied(),
            top_spending: sampled.top_spending(),
            permits: permits.limits,
            top_holding: sampled.named(permits.holding_most),
            top_limits: totals.top_limits(),
            events: inner.events.latest(),
        }
    }

    /// This instance's decisions by minute, of the minutes that began in `from..to` seconds since the epoch.
    pub fn minutes(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        let mut totals = self.inner.totals.lock();
        self.inner.flush(&mut totals);
        totals.minutes.rows(from, to)
    }

    /// The store's latency and failures in each of the last 120 seconds.
    pub fn store_seconds(&self) -> Vec<StoreRow> {
        self.inner.totals.lock().store_history.seconds()
    }

    /// The store's latency and failures in each minute of the last day.
    pub fn store_minutes(&self) -> Vec<StoreRow> {
        self.inner.totals.lock().store_history.minutes()
    }

    /// This instance's decisions by minute, summed over the rules or tenants that the query selects.
    pub(crate) fn history(&self, from: u64, selected: &HistoryQuery) -> Vec<HistoryRow> {
        let mut totals = self.inner.totals.lock();
        self.inner.flush(&mut totals);
        totals.minutes.history(from, selected)
    }

    /// This instance's decisions of the last day: one row for each rule and tenant, in no particular order.
    pub(crate) fn day(&self) -> Vec<DayRow> {
        let mut totals = self.inner.totals.lock();
        self.inner.flush(&mut totals);
        totals.minutes.sums()
    }

    /// Takes up to `most` rows that were counted since the last call. The first call takes from all minutes.
    pub(crate) fn take_unshared(&self, most: usize) -> Vec<MinuteRow> {
        let mut totals = self.inner.totals.lock();
        self.inner.flush(&mut totals);
        totals.minutes.take_unshared(most)
    }

    /// Ends every stream and export of this watch, so that a server can stop. Counting continues.
    pub fn close(&self) {
        let inner = &*self.inner;
        inner.sampled.lock().emit_suppressed(inner.clock.now(), true, &inner.events);
        self.inner.closed.send_replace(true);
    }

    /// Becomes true when the watch is closed.
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.inner.closed.subscribe()
    }

    /// The monotonic time of the watch's clock.
    pub fn now(&self) -> Micros {
        self.inner.clock.now()
    }

    /// The wall time of the watch's clock, which minutes and events use.
    pub(crate) fn wall(&self) -> Micros {
        self.inner.clock.wall()
    }

    pub(crate) fn downgrade(&self) -> WeakWatch {
        WeakWatch(Arc::downgrade(&self.inner))
    }

    /// Makes a metric handle in the recorder of this watch.
    pub(crate) fn register<T>(&self, make: impl FnOnce() -> T) -> T {
        self.inner.registrar.register(make)
    }

    fn count_reload(&self, result: &'static str, by: u64) {
        self.register(|| counter!(CONFIG_RELOADS, "result" => result).increment(by));
    }
}

impl WeakWatch {
    pub(crate) fn upgrade(&self) -> Option<Watch> {
        self.0.upgrade().map(|inner| Watch { inner })
    }
}

impl Observer for Watch {
    /// Handles what the limiter does not count itself: new series, sampled decisions, tenants and failures.
    fn decided(&self, seen: &Observed<'_>) {
        let (inner, decision) = (&*self.inner, seen.decision());
        let outcome = DecisionOutcome::of(decision);
        let (series, limit) = (Series::of(seen), decision.binding().name());
        inner.count(series, |table| {
            table.add_decisions(series, seen.rule(), limit.as_str(), outcome, decision.source())
        });
        if let Some(tenant) = seen.tenant() {
            inner.count_tenant(tenant, outcome);
        }
        if let Some(weight) = inner.counts.pick(seen) {
            inner.sampled.lock().record(seen, outcome, weight, inner.clock.now(), &inner.events);
        }
        if let Some(why) = decision.failure() {
            inner.failures.count(decision, why);
        }
    }

    fn unlimited(&self, rule: RuleName<'_>, tenant: Option<&str>) {
        let (inner, outcome) = (&*self.inner, DecisionOutcome::Allowed);
        let series = Series::unlimited(rule);
        inner.count(series, |table| {
            table.add_decisions(series, Some(rule.as_str()), "", outcome, DecisionSource::Policy)
        });
        if let Some(tenant) = tenant {
            inner.count_tenant(tenant, outcome);
        }
    }

    fn counts(&self) -> Option<Arc<DecisionCounts>> {
        Some(Arc::clone(&self.inner.counts))
    }
}

impl WatchState {
    /// Counts one decision in the thread's table, or in the series table if the thread's table has no slot. A series
    /// beyond the bound takes no slot.
    fn count(&self, series: Series, register: impl FnOnce(&mut SeriesTable) -> Series) {
        if self.counts.add(series) {
            return;
        }
        let mut table = self.table.lock();
        let counted_as = register(&mut table);
        if counted_as != series || !self.counts.make_room(series) || !self.counts.add(series) {
            table.count(counted_as);
        }
    }

    fn count_tenant(&self, tenant: &str, outcome: DecisionOutcome) {
        let series = Series::hashed(self.fingerprints.tenant(tenant, outcome as u64));
        self.count(series, |table| table.add_tenant(series, tenant, outcome));
    }

    fn flush(&self, totals: &mut CounterTotals) {
        let wall = self.clock.wall();
        let mut table = self.table.lock();
        for (series, more) in table.drain_unplaced() {
            add_to_totals(&table, totals, wall, series, more);
        }
        self.counts.drain(|series, more| add_to_totals(&table, totals, wall, series, more));
        totals.end_flush(self.clock.now(), wall);
    }
}

fn add_to_totals(table: &SeriesTable, totals: &mut CounterTotals, wall: Micros, series: Series, more: u64) {
    if let Some(info) = table.record(series, more) {
        totals.add(wall, info, more);
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("began", &self.inner.began).finish_non_exhaustive()
    }
}
