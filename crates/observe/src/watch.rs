//! The watch: hears of every decision, counts it at once, and does the rest later.

use std::sync::{Arc, Weak};

use metrics::counter;
use parking_lot::Mutex;
use spile_core::{Clock, Key, LimitName, Micros, StoreError};
use spile_limiter::{Counts, Observed, Observer, Series};
use tokio::sync::{broadcast, watch};

use crate::analytics::DayRow;
use crate::book::Book;
use crate::builder::WatchBuilder;
use crate::close_look::CloseLook;
#[cfg(feature = "webhooks")]
use crate::event::Lane;
use crate::event::{Event, Events, What};
use crate::failures::Failures;
use crate::fingerprint::Fingerprints;
use crate::health::{AskHealth, Health};
use crate::latencies::Latencies;
use crate::minutes::MinuteRow;
use crate::names::{self, CONFIG_RELOADS};
use crate::pulse::Pulse;
use crate::registrar::Registrar;
use crate::snapshot::Snapshot;
use crate::verdict::Verdict;

/// Seconds that "now" is taken over in a snapshot.
const LATELY: usize = 5;

/// Watches decisions. Give it to a limiter as its observer. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Watch {
    inner: Arc<Inner>,
}

/// A watch that is not kept alive by whoever holds this.
pub(crate) struct WeakWatch(Weak<Inner>);

struct Inner {
    prints: Fingerprints,
    /// Shared with the limiter, which counts in it.
    counts: Arc<Counts>,
    failures: Failures,
    latencies: Latencies,
    book: Mutex<Book>,
    close_look: Mutex<CloseLook>,
    /// Held by whoever flushes, so that counts are drained by one at a time.
    pulse: Mutex<Pulse>,
    events: Events,
    ask_health: Mutex<AskHealth>,
    registrar: Registrar,
    clock: Arc<dyn Clock>,
    began: Micros,
    closed: watch::Sender<bool>,
}

impl Watch {
    /// How to put one together.
    pub fn builder() -> WatchBuilder {
        WatchBuilder::new()
    }

    pub(crate) fn new(builder: WatchBuilder) -> Self {
        let WatchBuilder { registrar, clock, names_shown, ask_health, .. } = builder;
        registrar.register(names::describe);
        let prints = Fingerprints::default();
        let inner = Inner {
            counts: Arc::default(),
            failures: Failures::new(&registrar),
            latencies: Latencies::new(),
            book: Mutex::new(Book::new(registrar.clone(), prints.clone())),
            close_look: Mutex::new(CloseLook::new(registrar.clone(), prints.clone(), names_shown)),
            pulse: Mutex::new(Pulse::new(Health::new(&registrar))),
            events: Events::new(Arc::clone(&clock)),
            ask_health: Mutex::new(ask_health),
            began: clock.now(),
            closed: watch::Sender::new(false),
            prints,
            registrar,
            clock,
        };
        let watch = Self { inner: Arc::new(inner) };
        for result in ["applied", "refused"] {
            watch.count_reload(result, 0);
        }
        watch
    }

    /// Gives a configured rule its series before callers' inventions can use up the bound.
    pub fn expect(&self, rule: &str, limit: &LimitName) {
        self.inner.book.lock().expect(rule, limit.as_str());
    }

    /// Asks the store how it stands, once a second, from now on.
    pub fn watch_store(&self, ask: AskHealth) {
        *self.inner.ask_health.lock() = ask;
    }

    /// Notes how long a call to the store took.
    pub fn store_took(&self, us: u64) {
        self.inner.latencies.took(us);
    }

    /// Counts a call that was not sent to the store, and so took no time that says anything of it.
    pub fn store_not_asked(&self, why: &StoreError) {
        self.inner.failures.count_unsent(why);
    }

    /// A new configuration is in force.
    pub fn config_reloaded(&self) {
        self.count_reload("applied", 1);
        self.tell(What::ConfigReloaded);
    }

    /// A new configuration was bad, and the old one stays.
    pub fn config_refused(&self, why: impl Into<String>) {
        self.count_reload("refused", 1);
        self.tell(What::ConfigRefused { why: why.into() });
    }

    /// Tells whoever listens.
    pub fn tell(&self, what: What) {
        self.inner.events.tell(what);
    }

    /// Hears of every event from now on. A listener that lags far behind misses some, and is told how many.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.inner.events.listen()
    }

    /// Hears of the events of one lane alone.
    #[cfg(feature = "webhooks")]
    pub(crate) fn listen_to(&self, lane: Lane) -> broadcast::Receiver<Event> {
        self.inner.events.listen_to(lane)
    }

    /// How this key is shown where names are not: to find in a list whom one knows by name.
    pub fn mask(&self, key: Key<'_>) -> String {
        Fingerprints::mask(self.inner.prints.key(key))
    }

    /// Brings metrics up to date with what every thread has counted. Call it before they are read.
    pub fn flush(&self) {
        self.inner.flush(&mut self.inner.pulse.lock());
    }

    /// Ends a second: flushes, looks at the store's health, and closes the windows of levels and latencies.
    pub fn tick(&self) {
        let inner = &*self.inner;
        let health = (Arc::clone(&*inner.ask_health.lock()))();
        let mut pulse = inner.pulse.lock();
        inner.flush(&mut pulse);
        pulse.latencies.tick(&inner.latencies);
        let degraded = inner.failures.total();
        let more = degraded - std::mem::replace(&mut pulse.degraded_seen, degraded);
        pulse.health.tick(inner.clock.now(), health, more, &inner.events);
        drop(pulse);
        let mut close_look = inner.close_look.lock();
        close_look.tick();
        close_look.tell_suppressed(inner.clock.now(), false, &inner.events);
    }

    /// How things stand.
    pub fn snapshot(&self) -> Snapshot {
        let inner = &*self.inner;
        let (now, wall) = (inner.clock.now(), inner.clock.wall());
        let mut pulse = inner.pulse.lock();
        inner.flush(&mut pulse);
        let per_second = pulse.rates.lately(LATELY);
        let close_look = inner.close_look.lock();
        Snapshot {
            at_ms: wall.get() / 1_000,
            up_ms: now.since_us(inner.began) / 1_000,
            totals: pulse.totals,
            degraded: inner.failures.total(),
            per_second,
            denial_ratio: per_second.denial_ratio(),
            seconds: pulse.rates.seconds(now.get() / 1_000_000, wall.get() / 1_000_000),
            store_latency: pulse.latencies.percentiles(),
            store: pulse.health.now(),
            store_lost: pulse.health.is_lost(),
            levels: close_look.levels(),
            top_denied: close_look.top_denied(),
            top_spending: close_look.top_spending(),
            top_limits: pulse.top_limits(),
            events: inner.events.latest(),
        }
    }

    /// This instance's decisions by minute, of the minutes that began in `from..to` seconds since the epoch.
    pub fn minutes(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        let mut pulse = self.inner.pulse.lock();
        self.inner.flush(&mut pulse);
        pulse.minutes.rows(from, to)
    }

    /// This instance's decisions of the last day, one row for each rule and tenant in no order.
    pub(crate) fn day(&self) -> Vec<DayRow> {
        let mut pulse = self.inner.pulse.lock();
        self.inner.flush(&mut pulse);
        pulse.minutes.sums()
    }

    /// What was counted by minute since the last time that this was asked, `most` rows of it; the first time, everything.
    pub(crate) fn take_unshared(&self, most: usize) -> Vec<MinuteRow> {
        let mut pulse = self.inner.pulse.lock();
        self.inner.flush(&mut pulse);
        pulse.minutes.take_unshared(most)
    }

    /// Ends every stream that is open to this watch, so that a server can stop. Counting goes on.
    pub fn close(&self) {
        let inner = &*self.inner;
        inner.close_look.lock().tell_suppressed(inner.clock.now(), true, &inner.events);
        self.inner.closed.send_replace(true);
    }

    /// Turns true when the watch is closed.
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.inner.closed.subscribe()
    }

    /// What the watch's clock says.
    pub fn now(&self) -> Micros {
        self.inner.clock.now()
    }

    /// The wall time by the watch's clock: what minutes and events go by.
    pub(crate) fn wall(&self) -> Micros {
        self.inner.clock.wall()
    }

    pub(crate) fn downgrade(&self) -> WeakWatch {
        WeakWatch(Arc::downgrade(&self.inner))
    }

    /// Takes a handle on a metric where this watch counts.
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
    /// What the limiter has not counted itself: what is new, what is looked at closely, tenants and failures.
    fn decided(&self, seen: &Observed<'_>) {
        let (inner, decision) = (&*self.inner, seen.decision());
        let verdict = Verdict::of(decision);
        let (series, limit) = (Series::of(seen), decision.binding().name());
        inner.count(series, |book| {
            book.learn_decisions(series, seen.rule(), limit.as_str(), verdict, decision.source())
        });
        if let Some(tenant) = seen.tenant() {
            let series = Series::hashed(inner.prints.tenant(tenant, verdict as u64));
            inner.count(series, |book| book.learn_tenant(series, tenant, verdict));
        }
        if let Some(weight) = inner.counts.pick(seen) {
            inner.close_look.lock().take(seen, verdict, weight, inner.clock.now(), &inner.events);
        }
        if let Some(why) = decision.failure() {
            inner.failures.count(decision, why);
        }
    }

    fn counts(&self) -> Option<Arc<Counts>> {
        Some(Arc::clone(&self.inner.counts))
    }
}

impl Inner {
    /// Counts one in the thread's table where there is room, else in the book. What is beyond a bound takes no place.
    fn count(&self, series: Series, learn: impl FnOnce(&mut Book) -> Series) {
        if self.counts.add(series) {
            return;
        }
        let mut book = self.book.lock();
        let learnt = learn(&mut book);
        if learnt != series || !self.counts.make_room(series) || !self.counts.add(series) {
            book.count(learnt);
        }
    }

    fn flush(&self, pulse: &mut Pulse) {
        let wall = self.clock.wall();
        let mut book = self.book.lock();
        for (series, more) in book.drain_homeless() {
            settle(&book, pulse, wall, series, more);
        }
        self.counts.drain(|series, more| settle(&book, pulse, wall, series, more));
        pulse.close(self.clock.now(), wall);
    }
}

fn settle(book: &Book, pulse: &mut Pulse, wall: Micros, series: Series, more: u64) {
    if let Some(meaning) = book.settle(series, more) {
        pulse.add(wall, meaning, more);
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("began", &self.inner.began).finish_non_exhaustive()
    }
}
