//! Whether an upstream is well: what requests to it came to, and what checks say.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;
use spile_core::Micros;

/// Requests in a row, without an answer in between, that eject an upstream if they all fail or their clients all leave.
const MAX_UNANSWERED: u32 = 5;
/// A client that leaves sooner says nothing about the upstream.
const SHORTEST_SILENCE: Duration = Duration::from_millis(10);
/// How long clients that leave must have waited, all together, to eject an upstream: half of the route's `timeout`, but at
/// least the first and at most the second of these.
const WAITED_IN_VAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// How long an ejected upstream gets no requests.
const EJECTED_FOR: Duration = Duration::from_secs(10);

/// How a route's upstreams are asked whether they are well.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path that is asked for; a status from 200 to 399 is a good answer.
    pub path: http::uri::PathAndQuery,
    /// How often. Default 5 s.
    pub interval: Duration,
    /// How long an answer may take. Default 2 s.
    pub timeout: Duration,
    /// Bad answers in a row that take an upstream out. Default 3.
    pub unhealthy_after: u32,
    /// Good answers in a row that bring it back. Default 2.
    pub healthy_after: u32,
}

impl HealthCheck {
    /// Asks for this path.
    pub const fn new(path: http::uri::PathAndQuery) -> Self {
        Self {
            path,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// What is known of one upstream's health.
#[derive(Debug)]
pub(crate) struct Health {
    /// What checks say. Good until they say otherwise.
    up: AtomicBool,
    /// Checks in a row that say the opposite.
    contrary: AtomicU32,
    /// Requests that have failed since its last answer.
    failures: AtomicU32,
    abandoned: Mutex<AbandonedInARow>,
    /// Changes with every answer.
    answers: AtomicUsize,
    /// When it was ejected, by the gateway's clock, in microseconds; 0 if it is not.
    ejected_at_us: AtomicU64,
    gauge: Gauge,
    route: Box<str>,
    upstream: Box<str>,
}

/// A client that left before anything of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    /// How long the upstream had been silent, not counting what it waited for the client.
    pub(crate) silence: Duration,
    /// The route's `timeout`.
    pub(crate) timeout: Duration,
    /// What [`Health::answers`] said when the upstream was asked.
    pub(crate) answers: usize,
}

/// Clients that left one after the other, while the upstream answered no request at all.
#[derive(Debug, Default)]
struct AbandonedInARow {
    /// What [`Health::answers`] said when they asked.
    answers: usize,
    clients: u32,
    /// For how long at least one of them waited. Many clients that leave at once prove no more than one of them.
    waited: Duration,
    last_left: Micros,
}

impl Health {
    pub(crate) fn new(gauge: Gauge, route: &str, upstream: &str) -> Self {
        gauge.set(1.0);
        Self {
            up: AtomicBool::new(true),
            contrary: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            abandoned: Mutex::default(),
            answers: AtomicUsize::new(0),
            ejected_at_us: AtomicU64::new(0),
            gauge,
            route: route.into(),
            upstream: upstream.into(),
        }
    }

    pub(crate) fn is_well(&self, now: Micros) -> bool {
        !self.is_ejected(now) && self.up.load(Ordering::Relaxed)
    }

    /// Ends an ejection that is over, though no request asks.
    pub(crate) fn refresh(&self, now: Micros) {
        self.is_ejected(now);
    }

    /// Differs from what it was as soon as the upstream has answered anything.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// A request that was sent at `asked` was answered.
    pub(crate) fn answered(&self, asked: Micros) {
        // That it changes is enough: answers on two threads at once may count as one.
        self.answers.store(self.answers().wrapping_add(1), Ordering::Relaxed);
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        // If all upstreams are ejected, they are asked all the same. An answer to an earlier request proves nothing.
        let ejected_at_us = self.ejected_at_us.load(Ordering::Relaxed);
        if ejected_at_us != 0 && asked.get() > ejected_at_us {
            self.bring_back(ejected_at_us);
        }
    }

    /// A request could not be sent, was not answered in time, or its answer broke off.
    pub(crate) fn failed(&self, now: Micros) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNANSWERED {
            self.failures.store(0, Ordering::Relaxed);
            self.eject(now, "requests to it failed in a row");
        }
    }

    /// A client left before anything of an answer. True if the upstream has answered nothing since it was asked.
    ///
    /// One client that leaves proves nothing: the upstream may merely be slower than the client is patient. Only clients
    /// who have waited for longer than a slow answer takes, one after the other, show that the upstream hangs.
    pub(crate) fn abandoned(&self, now: Micros, left: Abandoned) -> bool {
        let unanswered = left.silence >= SHORTEST_SILENCE && left.answers == self.answers();
        if unanswered && self.abandoned.lock().add(now, left) {
            self.eject(now, "clients left it, and it answered none of them");
        }
        unanswered
    }

    fn eject(&self, now: Micros, why: &str) {
        if self.ejected_at_us.swap(now.get().max(1), Ordering::Relaxed) == 0 {
            let (route, upstream) = (&self.route, &self.upstream);
            tracing::warn!(
                target: "spile::gateway", %route, %upstream,
                "upstream ejected for {EJECTED_FOR:?}: {why}"
            );
            self.show();
        }
    }

    /// Ends an ejection that is over. A clock that was put back cannot tell when that is, so it ends the ejection too.
    fn is_ejected(&self, now: Micros) -> bool {
        let ejected_at_us = self.ejected_at_us.load(Ordering::Relaxed);
        if ejected_at_us == 0 {
            return false;
        }
        let ejected_at = Micros::new(ejected_at_us);
        let ejected = now >= ejected_at && now < ejected_at + EJECTED_FOR;
        if !ejected {
            self.bring_back(ejected_at_us);
        }
        ejected
    }

    fn bring_back(&self, ejected_at_us: u64) {
        let ended =
            self.ejected_at_us.compare_exchange(ejected_at_us, 0, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            let (route, upstream) = (&self.route, &self.upstream);
            tracing::info!(target: "spile::gateway", %route, %upstream, "upstream gets requests again");
            self.show();
        }
    }

    fn show(&self) {
        let well = self.up.load(Ordering::Relaxed) && self.ejected_at_us.load(Ordering::Relaxed) == 0;
        self.gauge.set(f64::from(u8::from(well)));
    }

    /// Checks have ended. What the last ones said would otherwise stand for good.
    pub(crate) fn unchecked(&self) {
        self.up.store(true, Ordering::Relaxed);
        self.show();
    }

    /// A check came to this.
    pub(crate) fn checked(&self, good: bool, check: &HealthCheck) {
        let up = self.up.load(Ordering::Relaxed);
        if good == up {
            self.contrary.store(0, Ordering::Relaxed);
            return;
        }
        let contrary = self.contrary.fetch_add(1, Ordering::Relaxed) + 1;
        let enough = if up { check.unhealthy_after } else { check.healthy_after };
        if contrary >= enough {
            self.contrary.store(0, Ordering::Relaxed);
            self.up.store(good, Ordering::Relaxed);
            self.show();
            let (route, upstream) = (&self.route, &self.upstream);
            if good {
                tracing::info!(target: "spile::gateway", %route, %upstream, "health checks of the upstream pass again");
            } else {
                tracing::warn!(target: "spile::gateway", %route, %upstream, "health checks of the upstream fail");
            }
        }
    }
}

impl AbandonedInARow {
    /// Adds a client. True if these are enough to eject the upstream; the count then starts again.
    ///
    /// It also starts again after an answer, and after a time in which the upstream was not asked: clients who come by now
    /// and then would otherwise add up.
    fn add(&mut self, now: Micros, left: Abandoned) -> bool {
        let since_last = Duration::from_micros(now.since_us(self.last_left));
        if self.answers != left.answers || since_last > left.silence + EJECTED_FOR {
            *self = Self { answers: left.answers, ..Self::default() };
        }
        self.clients += 1;
        self.waited += left.silence.min(since_last);
        self.last_left = now;
        let (least, most) = WAITED_IN_VAIN;
        let in_vain = self.clients >= MAX_UNANSWERED && self.waited >= (left.timeout / 2).clamp(least, most);
        if in_vain {
            (self.clients, self.waited) = (0, Duration::ZERO);
        }
        in_vain
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::sync::Arc;

    use super::*;

    const NOW: Micros = Micros::from_secs(10_000);

    fn health() -> Health {
        Health::new(Gauge::noop(), "/", "a:80")
    }

    #[test]
    fn checks_take_an_upstream_out_and_bring_it_back() {
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/health"));
        let health = health();
        for bad in 0..3 {
            assert!(health.is_well(NOW), "after {bad} bad answers");
            health.checked(false, &check);
        }
        assert!(!health.is_well(NOW));
        health.checked(true, &check);
        assert!(!health.is_well(NOW), "one good answer is not enough");
        health.checked(true, &check);
        assert!(health.is_well(NOW));
    }

    #[test]
    fn failures_in_a_row_eject_an_upstream_for_a_while() {
        let health = health();
        (0..4).for_each(|_| health.failed(NOW));
        health.answered(NOW);
        (0..4).for_each(|_| health.failed(NOW));
        assert!(health.is_well(NOW), "an answer in between starts the count again");
        health.failed(NOW);
        assert!(!health.is_well(NOW));
        assert!(health.is_well(NOW + EJECTED_FOR));
    }

    #[test]
    fn an_answer_to_a_later_request_ends_an_ejection() {
        let (health, later) = (health(), NOW + Duration::from_secs(1));
        (0..5).for_each(|_| health.failed(NOW));
        health.answered(NOW);
        assert!(!health.is_well(later), "the request was sent before");
        health.answered(later);
        assert!(health.is_well(later));
    }

    #[test]
    fn a_clock_that_is_put_back_does_not_prolong_an_ejection() {
        let health = health();
        (0..5).for_each(|_| health.failed(NOW));
        assert!(!health.is_well(NOW));
        assert!(health.is_well(NOW - Duration::from_secs(3_600)));
    }

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// So many clients ask, every so often, and each leaves after so long. True if the upstream is well all the while.
    fn stays_well(clients: u32, every_ms: u64, silence_ms: u64, timeout: Duration) -> bool {
        let (health, mut now) = (health(), NOW);
        (0..clients).all(|_| {
            now = now + Duration::from_millis(every_ms);
            let silence = Duration::from_millis(silence_ms);
            assert!(health.abandoned(now, Abandoned { silence, timeout, answers: health.answers() }));
            health.is_well(now)
        })
    }

    #[test]
    fn clients_that_leave_eject_an_upstream_once_they_have_waited_longer_than_a_slow_answer_takes() {
        for (clients, every_ms, silence_ms, timeout_s) in [
            (60, 50, 50, 30),
            (15, 200, 200, 30),
            (5, 1_000, 1_000, 30),
            (15, 300, 200, 30),
            (5, 10_000, 5_000, 30),
            (5, 200, 200, 1),
            (10, 200, 200, 4),
        ] {
            let (case, timeout) = ((clients, every_ms, silence_ms), Duration::from_secs(timeout_s));
            assert!(stays_well(clients - 1, every_ms, silence_ms, timeout), "{case:?}");
            assert!(!stays_well(clients, every_ms, silence_ms, timeout), "{case:?}");
        }
    }

    #[test]
    fn clients_in_a_hurry_do_not_eject_an_upstream_that_is_merely_slow() {
        assert!(stays_well(24, 50, 50, TIMEOUT), "one after the other");
        assert!(stays_well(1_000, 0, 50, TIMEOUT), "all at once");
        assert!(stays_well(1_000, 1, 50, TIMEOUT), "beside each other");
        assert!(stays_well(19, 50, 50, Duration::from_millis(100)), "with a timeout that is short");
        assert!(stays_well(1_000, 60_000, 50, TIMEOUT), "now and then");
    }

    #[test]
    fn clients_that_leave_while_others_are_answered_do_not_eject_an_upstream() {
        let health = health();
        let left = |silence_ms, health: &Health| Abandoned {
            silence: Duration::from_millis(silence_ms),
            timeout: TIMEOUT,
            answers: health.answers(),
        };
        for second in 0..100 {
            let now = NOW + Duration::from_secs(second);
            assert!(!health.abandoned(now, left(5, &health)), "too soon to tell");
            let early = left(60_000, &health);
            health.answered(now);
            assert!(!health.abandoned(now, early), "others were answered meanwhile");
            assert!(health.abandoned(now, left(1_000, &health)));
        }
        assert!(health.is_well(NOW + Duration::from_secs(100)));
    }

    /// Keeps the levels and words of events.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl tracing::Subscriber for Log {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut words = event.metadata().level().to_string();
            event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                let _ = write!(words, " {field}={value:?}");
            });
            self.0.lock().push(words);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn an_ejection_and_its_end_are_logged_once_each() {
        let (log, health) = (Log::default(), health());
        tracing::subscriber::with_default(log.clone(), || {
            (0..20).for_each(|_| health.failed(NOW));
            (0..5).for_each(|_| assert!(!health.is_well(NOW)));
            (0..5).for_each(|_| health.refresh(NOW + EJECTED_FOR));
        });
        let log = log.0.lock();
        let told = |at: usize, words: [&str; 3]| words.iter().all(|words| log[at].contains(words));
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(
            told(0, ["WARN", "route=/", "upstream=a:80"]) && told(1, ["INFO", "route=/", "upstream=a:80"])
        );
    }
}
