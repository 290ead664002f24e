//! Counts the requests of listeners that do not answer with an HTTP status, by result.

use metrics::{Counter, counter, describe_counter};
use spile_observe::trace::Tracer;

use super::Telemetry;

const REQUESTS: &str = "rpc_server_requests_total";
const UNMATCHED: &str = "ratelimit_unmatched_descriptors_total";

/// The result of a request, as metrics label it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    Allowed,
    Limited,
    /// The store failed, and the failure policy denies.
    Unavailable,
    /// The request was invalid, and nothing was charged.
    Refused,
    /// The request was not for a decision.
    Other,
    /// The request could not be parsed, and was answered like one over the limit.
    Unreadable,
}

const RESULTS: [&str; 6] = ["allowed", "limited", "unavailable", "refused", "other", "unreadable"];

/// The metrics of one listener.
pub(crate) struct RpcMetrics {
    enabled: bool,
    requests: [Counter; RESULTS.len()],
    tracer: Option<Tracer>,
}

impl RpcMetrics {
    pub(crate) fn new(telemetry: &Telemetry, listener: &'static str) -> Self {
        let requests = telemetry.register(|| {
            describe_counter!(
                REQUESTS,
                "Requests of listeners that do not answer with an HTTP status, by listener and result."
            );
            RESULTS.map(|result| counter!(REQUESTS, "listener" => listener, "result" => result))
        });
        Self { enabled: telemetry.is_enabled(), requests, tracer: None }
    }

    /// Traces every request from now on.
    pub(crate) fn traced_by(mut self, tracer: Option<Tracer>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Answers a request, as a span of this name if there is a tracer.
    pub(crate) fn traced<T>(
        &self,
        name: &'static str,
        answer: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        Tracer::maybe(self.tracer.as_ref(), name, None, answer)
    }

    pub(crate) fn count(&self, answered: Answered) {
        if self.enabled {
            self.requests[answered as usize].increment(1);
        }
    }
}

/// Counts descriptors that match no rule and were allowed.
pub(crate) struct Unmatched {
    enabled: bool,
    descriptors: Counter,
}

impl Unmatched {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let descriptors = telemetry.register(|| {
            describe_counter!(UNMATCHED, "Descriptors that match no rule and were allowed.");
            counter!(UNMATCHED)
        });
        Self { enabled: telemetry.is_enabled(), descriptors }
    }

    pub(crate) fn count(&self, descriptors: usize) {
        if self.enabled && descriptors > 0 {
            self.descriptors.increment(descriptors as u64);
        }
    }
}
