//! What is counted. Handles are taken when the gateway is built, under whichever recorder is in place then.

use std::time::Duration;

use http::StatusCode;
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

/// Statuses that have a series of their own; any other is counted as `other`.
const STATUSES: [u16; 36] = [
    101, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410,
    412, 413, 414, 415, 416, 422, 429, 431, 499, 500, 501, 502, 503, 504, 508,
];

/// What other proxies log in place of a status that no client was there to get.
const CLIENT_LEFT: u16 = 499;

/// The series of the gateway's listener.
pub(crate) struct Telemetry {
    requests: [Counter; STATUSES.len()],
    other: Counter,
    duration: Histogram,
}

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

impl Telemetry {
    pub(crate) fn new() -> Self {
        describe();
        let requests = |status: String| counter!("http_server_requests_total", "listener" => "gateway", "status" => status);
        Self {
            requests: STATUSES.map(|status| requests(status.to_string())),
            other: requests("other".to_owned()),
            duration: histogram!("http_server_request_duration_seconds", "listener" => "gateway"),
        }
    }

    pub(crate) fn answered(&self, status: StatusCode, took: Duration) {
        self.ended(status.as_u16(), took);
    }

    /// The client left before the header of an answer.
    pub(crate) fn abandoned(&self, took: Duration) {
        self.ended(CLIENT_LEFT, took);
    }

    fn ended(&self, status: u16, took: Duration) {
        let own = STATUSES.binary_search(&status).ok().map(|index| &self.requests[index]);
        own.unwrap_or(&self.other).increment(1);
        self.duration.record(took.as_secs_f64());
    }
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

fn describe() {
    describe_counter!("http_server_requests_total", "HTTP requests answered; 499 if the client left before.");
    describe_histogram!("http_server_request_duration_seconds", "From request to answer.");
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
