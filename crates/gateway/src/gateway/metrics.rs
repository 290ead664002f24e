//! Metrics. Handles are registered with the recorder that is installed when the gateway is built.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

/// The metrics of one route.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    pub(crate) retries: Counter,
    pub(crate) unreachable: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) bad_answer: Counter,
    pub(crate) busy: Counter,
    pub(crate) abandoned: Counter,
    pub(crate) local: Counter,
}

impl RouteMetrics {
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

/// The gauge of the factor on a route's limits.
pub(crate) fn adaptive_factor(route: &str) -> Gauge {
    gauge!("gateway_adaptive_factor", "route" => route.to_owned())
}

/// How full the queue of one upstream is.
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

/// Registers the help texts.
pub(crate) fn describe() {
    describe_counter!("gateway_retries_total", "Requests that were retried.");
    describe_counter!(
        "gateway_upstream_failures_total",
        "Requests without a response from an upstream, by reason."
    );
    describe_gauge!(
        "gateway_upstream_up",
        "Whether an upstream gets requests: 0 while its health checks fail or it is ejected, else 1."
    );
    describe_counter!(
        "gateway_answer_costs_total",
        "Answers of routes with cost_from_response, by what they said of their cost."
    );
    describe_gauge!(
        "gateway_detached_exchanges",
        "Exchanges that go on without their client, for the cost of their answer."
    );
    describe_counter!(
        "gateway_detached_cut_total",
        "Exchanges without a client that were cut because a bound was reached, by reason."
    );
    describe_gauge!("gateway_adaptive_factor", "The factor by which the limits of a route are multiplied.");
    describe_gauge!(
        "gateway_concurrency_in_use",
        "Requests in flight at an upstream with a concurrency cap."
    );
    describe_counter!("gateway_access_log_lines_total", "Lines written to the access log.");
    describe_counter!(
        "gateway_access_log_dropped_total",
        "Lines of the access log that were lost, by reason: the queue was full, or writing failed."
    );
    describe_gauge!("gateway_queue_depth", "Requests waiting for an upstream with a concurrency cap.");
}
