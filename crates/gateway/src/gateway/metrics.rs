//! What is counted. Handles are taken when the gateway is built, under whichever recorder is in place then.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

/// The series of one route.
#[derive(Debug)]
pub(crate) struct RouteTelemetry {
    pub(crate) retries: Counter,
    pub(crate) unreachable: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) bad_answer: Counter,
    pub(crate) busy: Counter,
    pub(crate) abandoned: Counter,
    pub(crate) local: Counter,
}

impl RouteTelemetry {
    pub(crate) fn new(route: &str) -> Self {
        let failures = |reason: &'static str| counter!("gateway_upstream_failures_total", "route" => route.to_owned(), "reason" => reason);
        Self {
            retries: counter!("gateway_retries_total", "route" => route.to_owned()),
            unreachable: failures("unreachable"),
            timed_out: failures("timed_out"),
            bad_answer: failures("bad_answer"),
            busy: failures("busy"),
            abandoned: failures("abandoned"),
            local: failures("local"),
        }
    }
}

/// Shows how far a route's limits are cut at the moment.
pub(crate) fn adaptive_factor(route: &str) -> Gauge {
    gauge!("gateway_adaptive_factor", "route" => route.to_owned())
}

/// How full the queue before one upstream is.
#[derive(Debug)]
pub(crate) struct QueueGauges {
    pub(crate) in_use: Gauge,
    pub(crate) waiting: Gauge,
}

impl QueueGauges {
    pub(crate) fn new(labels: &[(&'static str, String); 2]) -> Self {
        Self {
            in_use: gauge!("gateway_concurrency_in_use", labels),
            waiting: gauge!("gateway_queue_depth", labels),
        }
    }

    #[cfg(test)]
    pub(crate) const fn noop() -> Self {
        Self { in_use: Gauge::noop(), waiting: Gauge::noop() }
    }
}

/// Says what the series of a gateway are.
pub(crate) fn describe() {
    describe_counter!("gateway_retries_total", "Requests that were sent to an upstream once more.");
    describe_counter!(
        "gateway_upstream_failures_total",
        "Requests that no upstream answered, by what went wrong."
    );
    describe_gauge!(
        "gateway_upstream_up",
        "Whether an upstream gets requests: 0 while health checks say no, or it is ejected."
    );
    describe_gauge!("gateway_adaptive_factor", "What the limits of a route are multiplied by at the moment.");
    describe_gauge!("gateway_concurrency_in_use", "Requests under way at an upstream that has a cap.");
    describe_gauge!("gateway_queue_depth", "Requests that wait for an upstream that has a cap.");
}
