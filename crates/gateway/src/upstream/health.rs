//! The health of an upstream: passive, by the results of requests, and active, by health checks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;
use spile_core::Micros;

use super::attempt_error::AttemptError;
use super::connector::ConnectError;

/// An upstream is ejected after this many requests in a row that failed, or that were abandoned by their clients.
const MAX_UNANSWERED: u32 = 5;
/// A client that disconnects sooner says nothing about the upstream.
const SHORTEST_SILENCE: Duration = Duration::from_millis(10);
/// How long clients that disconnect must have waited in total to eject an upstream: half of the route's `timeout`, but
/// at least the first and at most the second of these.
const WAITED_IN_VAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// How long an ejected upstream gets no requests.
const EJECTED_FOR: Duration = Duration::from_secs(10);

/// Active health checks of a route's upstreams.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path to request. A status from 200 to 399 is a success.
    pub path: http::uri::PathAndQuery,
    /// The time between two checks. Default 5 s.
    pub interval: Duration,
    /// How long a response may take. Default 2 s.
    pub timeout: Duration,
    /// Failures in a row after which an upstream is unhealthy. Default 3.
    pub unhealthy_after: u32,
    /// Successes in a row after which it is healthy again. Default 2.
    pub healthy_after: u32,
}

impl HealthCheck {
    /// Checks that request this path.
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

/// The health of one upstream, shared by all workers.
#[derive(Debug)]
pub(crate) struct UpstreamHealth {
    /// The result of the health checks. True until they fail.
    up: AtomicBool,
    /// Checks in a row that contradict `up`.
    opposite_checks: AtomicU32,
    /// Requests that have failed since the last response.
    failures: AtomicU32,
    abandoned: Mutex<AbandonedStreak>,
    /// Changes with every response.
    answers: AtomicUsize,
    /// When the upstream was ejected, by the gateway's clock, in microseconds. 0 if it is not.
    ejected_at_us: AtomicU64,
    gauge: Gauge,
    route: Box<str>,
    upstream: Box<str>,
    /// Why the last connection could not be opened.
    connect_error: Mutex<Box<str>>,
}

/// A request whose client disconnected before any of the response arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbandonedRequest {
    /// How long the upstream had been silent, without the time that it waited for the client.
    pub(crate) silence: Duration,
    /// The route's `timeout`.
    pub(crate) timeout: Duration,
    /// [`UpstreamHealth::answers`] when the request was sent.
    pub(crate) answers: usize,
}

/// Requests abandoned in a row, while the upstream responded to no other request.
#[derive(Debug, Default)]
struct AbandonedStreak {
    /// [`UpstreamHealth::answers`] when the requests were sent.
    answers: usize,
    clients: u32,
    /// How long at least one client was waiting. Many that disconnect at once prove no more than one.
    waited: Duration,
    last_left: Micros,
}

impl UpstreamHealth {
    pub(crate) fn new(gauge: Gauge, route: &str, upstream: &str) -> Self {
        gauge.set(1.0);
        Self {
            up: AtomicBool::new(true),
            opposite_checks: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            abandoned: Mutex::default(),
            answers: AtomicUsize::new(0),
            ejected_at_us: AtomicU64::new(0),
            gauge,
            route: route.into(),
            upstream: upstream.into(),
            connect_error: Mutex::default(),
        }
    }

    /// The name of the upstream.
    pub(crate) const fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Records why a connection could not be opened, for the log.
    #[cold]
    pub(crate) fn note_connect_error(&self, why: &ConnectError) {
        *self.connect_error.lock() = why.to_string().into();
    }

    /// The cause of a failed attempt, as it is logged.
    pub(crate) fn cause(&self, why: AttemptError) -> String {
        let detail = self.connect_error.lock();
        match why {
            AttemptError::Unreachable if !detail.is_empty() => format!("{}: {detail}", why.cause()),
            why => why.cause().to_owned(),
        }
    }

    pub(crate) fn is_healthy(&self, now: Micros) -> bool {
        !self.is_ejected(now) && self.up.load(Ordering::Relaxed)
    }

    /// Ends an ejection whose time is over. Needed if no request asks for the health.
    pub(crate) fn refresh(&self, now: Micros) {
        self.is_ejected(now);
    }

    /// A number that changes with every response.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// Records a response to a request that was sent at `asked`.
    pub(crate) fn record_answer(&self, asked: Micros) {
        // It only has to change: two responses at once on two threads may count as one.
        self.answers.store(self.answers().wrapping_add(1), Ordering::Relaxed);
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        // If all upstreams are ejected, they still get requests. Only responses to later requests end the ejection.
        let ejected_at_us = self.ejected_at_us.load(Ordering::Relaxed);
        if ejected_at_us != 0 && asked.get() > ejected_at_us {
            self.end_ejection(ejected_at_us, "it responded");
        }
    }

    /// Records that a request could not be sent, got no response in time, or that the response broke off.
    pub(crate) fn record_failure(&self, now: Micros, why: AttemptError) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNANSWERED {
            self.failures.store(0, Ordering::Relaxed);
            self.eject(now, || {
                format!("{MAX_UNANSWERED} attempts in a row failed, the last because {}", self.cause(why))
            });
        }
    }

    /// Records that a client disconnected. True if the upstream has responded to nothing since the request was sent.
    ///
    /// One client that disconnects proves nothing: the upstream may just be slower than the client is patient. Only
    /// clients that have waited longer than a slow response takes, one after the other, show that the upstream hangs.
    pub(crate) fn record_abandoned(&self, now: Micros, left: AbandonedRequest) -> bool {
        let unanswered = left.silence >= SHORTEST_SILENCE && left.answers == self.answers();
        if unanswered && self.abandoned.lock().add(now, left) {
            self.eject(now, || "clients disconnected without a response from it".to_owned());
        }
        unanswered
    }

    fn eject(&self, now: Micros, why: impl FnOnce() -> String) {
        if self.ejected_at_us.swap(now.get().max(1), Ordering::Relaxed) == 0 {
            let (route, upstream) = (&self.route, &self.upstream);
            tracing::warn!(
                target: "spile::gateway", %route, %upstream, cause = why(),
                "upstream ejected for {EJECTED_FOR:?}"
            );
            self.update_gauge();
        }
    }

    /// Whether the upstream is ejected. Ends an ejection that is over, or in the future of a clock that was set back.
    fn is_ejected(&self, now: Micros) -> bool {
        let ejected_at_us = self.ejected_at_us.load(Ordering::Relaxed);
        if ejected_at_us == 0 {
            return false;
        }
        let ejected_at = Micros::new(ejected_at_us);
        let ejected = now >= ejected_at && now < ejected_at + EJECTED_FOR;
        if !ejected {
            self.end_ejection(ejected_at_us, "the time of its ejection is over");
        }
        ejected
    }

    fn end_ejection(&self, ejected_at_us: u64, cause: &str) {
        let ended =
            self.ejected_at_us.compare_exchange(ejected_at_us, 0, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            let (route, upstream) = (&self.route, &self.upstream);
            tracing::info!(target: "spile::gateway", %route, %upstream, cause, "upstream receives requests again");
            self.update_gauge();
        }
    }

    fn update_gauge(&self) {
        let well = self.up.load(Ordering::Relaxed) && self.ejected_at_us.load(Ordering::Relaxed) == 0;
        self.gauge.set(f64::from(u8::from(well)));
    }

    /// Forgets the results of health checks, because the route no longer has any.
    pub(crate) fn reset_checks(&self) {
        if !self.up.swap(true, Ordering::Relaxed) {
            let (route, upstream) = (&self.route, &self.upstream);
            let cause = "the route has no health checks any more";
            tracing::info!(target: "spile::gateway", %route, %upstream, cause, "upstream up");
        }
        self.update_gauge();
    }

    /// Records the result of a health check. `Err` has the reason of the failure.
    pub(crate) fn record_check(&self, result: Result<(), String>, check: &HealthCheck) {
        let (up, good) = (self.up.load(Ordering::Relaxed), result.is_ok());
        if good == up {
            self.opposite_checks.store(0, Ordering::Relaxed);
            return;
        }
        let opposite_checks = self.opposite_checks.fetch_add(1, Ordering::Relaxed) + 1;
        let enough = if up { check.unhealthy_after } else { check.healthy_after };
        if opposite_checks >= enough {
            self.opposite_checks.store(0, Ordering::Relaxed);
            self.up.store(good, Ordering::Relaxed);
            self.update_gauge();
            let (route, upstream) = (&self.route, &self.upstream);
            match result {
                Ok(()) => {
                    let cause = format!("{enough} health checks in a row passed");
                    tracing::info!(target: "spile::gateway", %route, %upstream, cause, "upstream up");
                }
                Err(why) => {
                    let cause = format!("{enough} health checks in a row failed, the last because {why}");
                    tracing::warn!(target: "spile::gateway", %route, %upstream, cause, "upstream down");
                }
            }
        }
    }
}

impl AbandonedStreak {
    /// Adds a request. True if there are now enough to eject the upstream. The count then starts again.
    ///
    /// It also starts again after a response, and after a time without requests. Otherwise occasional clients would add up.
    fn add(&mut self, now: Micros, left: AbandonedRequest) -> bool {
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

    fn health() -> UpstreamHealth {
        UpstreamHealth::new(Gauge::noop(), "/", "a:80")
    }

    #[test]
    fn checks_take_an_upstream_out_and_bring_it_back() {
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/health"));
        let health = health();
        for bad in 0..3 {
            assert!(health.is_healthy(NOW), "after {bad} bad answers");
            health.record_check(Err("status 503".to_owned()), &check);
        }
        assert!(!health.is_healthy(NOW));
        health.record_check(Ok(()), &check);
        assert!(!health.is_healthy(NOW), "one good answer is not enough");
        health.record_check(Ok(()), &check);
        assert!(health.is_healthy(NOW));
    }

    #[test]
    fn failures_in_a_row_eject_an_upstream_for_a_while() {
        let health = health();
        (0..4).for_each(|_| health.record_failure(NOW, AttemptError::TimedOut));
        health.record_answer(NOW);
        (0..4).for_each(|_| health.record_failure(NOW, AttemptError::TimedOut));
        assert!(health.is_healthy(NOW), "an answer in between starts the count again");
        health.record_failure(NOW, AttemptError::TimedOut);
        assert!(!health.is_healthy(NOW));
        assert!(health.is_healthy(NOW + EJECTED_FOR));
    }

    #[test]
    fn an_answer_to_a_later_request_ends_an_ejection() {
        let (health, later) = (health(), NOW + Duration::from_secs(1));
        (0..5).for_each(|_| health.record_failure(NOW, AttemptError::TimedOut));
        health.record_answer(NOW);
        assert!(!health.is_healthy(later), "the request was sent before");
        health.record_answer(later);
        assert!(health.is_healthy(later));
    }

    #[test]
    fn a_clock_that_is_put_back_does_not_prolong_an_ejection() {
        let health = health();
        (0..5).for_each(|_| health.record_failure(NOW, AttemptError::TimedOut));
        assert!(!health.is_healthy(NOW));
        assert!(health.is_healthy(NOW - Duration::from_secs(3_600)));
    }

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Lets clients send requests at this interval and disconnect after this time. True if the upstream stays healthy.
    fn stays_well(clients: u32, every_ms: u64, silence_ms: u64, timeout: Duration) -> bool {
        let (health, mut now) = (health(), NOW);
        (0..clients).all(|_| {
            now = now + Duration::from_millis(every_ms);
            let silence = Duration::from_millis(silence_ms);
            assert!(
                health
                    .record_abandoned(now, AbandonedRequest { silence, timeout, answers: health.answers() })
            );
            health.is_healthy(now)
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
        let left = |silence_ms, health: &UpstreamHealth| AbandonedRequest {
            silence: Duration::from_millis(silence_ms),
            timeout: TIMEOUT,
            answers: health.answers(),
        };
        for second in 0..100 {
            let now = NOW + Duration::from_secs(second);
            assert!(!health.record_abandoned(now, left(5, &health)), "too soon to tell");
            let early = left(60_000, &health);
            health.record_answer(now);
            assert!(!health.record_abandoned(now, early), "others were answered meanwhile");
            assert!(health.record_abandoned(now, left(1_000, &health)));
        }
        assert!(health.is_healthy(NOW + Duration::from_secs(100)));
    }

    /// Collects the level and the fields of log events.
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
            (0..20).for_each(|_| health.record_failure(NOW, AttemptError::TimedOut));
            (0..5).for_each(|_| assert!(!health.is_healthy(NOW)));
            (0..5).for_each(|_| health.refresh(NOW + EJECTED_FOR));
        });
        let log = log.0.lock();
        let last_warned = |at: usize, words: [&str; 3]| words.iter().all(|words| log[at].contains(words));
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(
            last_warned(0, ["WARN", "route=/", "it did not respond in time"])
                && last_warned(1, ["INFO", "upstream=a:80", "the time of its ejection is over"]),
            "{log:?}"
        );
    }

    #[test]
    fn what_health_checks_find_is_logged_once_with_its_cause() {
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/health"));
        let (log, health) = (Log::default(), health());
        tracing::subscriber::with_default(log.clone(), || {
            (0..10).for_each(|_| health.record_check(Err("its status is 503".to_owned()), &check));
            (0..10).for_each(|_| health.record_check(Ok(()), &check));
            (0..10).for_each(|_| health.record_check(Err("no answer within 2s".to_owned()), &check));
            (0..2).for_each(|_| health.reset_checks());
        });
        let log = log.0.lock();
        let expected =
            ["its status is 503", "2 health checks in a row passed", "no answer", "no health checks"];
        assert_eq!(log.len(), expected.len(), "{log:?}");
        assert!(log.iter().zip(expected).all(|(line, cause)| line.contains(cause)), "{log:?}");
    }

    #[test]
    fn why_no_connection_could_be_opened_is_part_of_the_cause() {
        let health = health();
        assert_eq!(health.cause(AttemptError::Unreachable), "no connection could be opened");
        health.note_connect_error(&ConnectError::Io(std::io::Error::from_raw_os_error(111)));
        assert!(health.cause(AttemptError::Unreachable).contains("refused"));
        assert_eq!(health.cause(AttemptError::TimedOut), "it did not respond in time");
    }
}
