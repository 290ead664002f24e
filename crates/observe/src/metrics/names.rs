//! The names and help texts of all metrics of this crate.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(crate) const DECISIONS: &str = "ratelimit_decisions_total";
pub(crate) const FAIL_OPEN: &str = "ratelimit_failopen_total";
pub(crate) const FAIL_CLOSED: &str = "ratelimit_failclosed_total";
pub(crate) const LOCAL: &str = "ratelimit_local_total";
pub(crate) const STORE_FAILURES: &str = "ratelimit_store_failures_total";
pub(crate) const STORE_DURATION: &str = "ratelimit_store_duration_seconds";
pub(crate) const BUCKET_LEVEL: &str = "ratelimit_bucket_level_ratio";
pub(crate) const BREAKER: &str = "ratelimit_breaker_state";
pub(crate) const QUEUE: &str = "ratelimit_queue_depth";
pub(crate) const STORE_STATE: &str = "ratelimit_store_state";
pub(crate) const CONFIG_RELOADS: &str = "ratelimit_config_reloads_total";
pub(crate) const EVENTS_SUPPRESSED: &str = "ratelimit_events_suppressed_total";
pub(crate) const SAVES: &str = "ratelimit_store_saves_total";
pub(crate) const SAVED_BUCKETS: &str = "ratelimit_store_saved_buckets";
pub(crate) const SAVED_AT: &str = "ratelimit_store_saved_timestamp_seconds";
pub(crate) const HTTP_REQUESTS: &str = "http_server_requests_total";
pub(crate) const HTTP_DURATION: &str = "http_server_request_duration_seconds";

/// Bucket bounds for durations, in seconds: from 50 µs, a decision of the embedded store, to one second.
const DURATION_BUCKETS: [f64; 13] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// Bucket bounds for levels: from an empty bucket to nearly a full one.
const LEVEL_BUCKETS: [f64; 6] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9];

/// The histograms with their bucket bounds, for a Prometheus exporter.
pub const HISTOGRAMS: [(&str, &[f64]); 3] =
    [(HTTP_DURATION, &DURATION_BUCKETS), (STORE_DURATION, &DURATION_BUCKETS), (BUCKET_LEVEL, &LEVEL_BUCKETS)];

pub(crate) fn describe() {
    describe_counter!(DECISIONS, "Decisions, by rule, binding limit, outcome and source of the decision.");
    describe_counter!(FAIL_OPEN, "Requests allowed because the store failed, by reason.");
    describe_counter!(FAIL_CLOSED, "Requests denied because the store failed, by reason.");
    describe_counter!(LOCAL, "Requests decided by this instance alone because the store failed, by reason.");
    describe_counter!(
        STORE_FAILURES,
        "Calls to the store that failed, by operation and reason. Those that were not sent have no duration."
    );
    describe_histogram!(STORE_DURATION, Unit::Seconds, "Duration of calls to the store, by operation.");
    describe_histogram!(
        BUCKET_LEVEL,
        "How full buckets are when a request is charged, from 0 to 1, by limit. Sampled."
    );
    describe_gauge!(BREAKER, "Store nodes whose circuit breaker is open; 0 if all are healthy.");
    describe_gauge!(QUEUE, "Callers that wait for the store.");
    describe_gauge!(STORE_STATE, "1 for the state of the store: well, slow or lost; 0 for the others.");
    describe_counter!(CONFIG_RELOADS, "Reloads of the configuration, by result.");
    describe_counter!(
        EVENTS_SUPPRESSED,
        "Keys and tenants without an event because the budget of a minute was spent, by kind of event."
    );
    describe_counter!(SAVES, "Saves of the embedded store's buckets to its file, by result.");
    describe_gauge!(SAVED_BUCKETS, "Buckets in the file of the last successful save.");
    describe_gauge!(SAVED_AT, Unit::Seconds, "Time of the last successful save, in seconds since the epoch.");
    describe_counter!(HTTP_REQUESTS, "HTTP requests answered, by listener and status.");
    describe_histogram!(HTTP_DURATION, Unit::Seconds, "Time from request to response, by listener.");
}
