//! Counts what comes by listeners whose answers are no HTTP statuses, by how it was answered.

use metrics::{Counter, counter, describe_counter};
use spile_observe::trace::Tracer;

use super::Telemetry;

const REQUESTS: &str = "rpc_server_requests_total";
const UNMATCHED: &str = "ratelimit_unmatched_descriptors_total";

/// How a request was answered, as it is labelled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    Allowed,
    Limited,
    /// The store failed, and the policy is to refuse.
    Unavailable,
    /// Something was wrong with it; nothing was charged.
    Refused,
    /// It asked for no decision.
    Other,
    /// It could not be read, and was refused as one over a limit is.
    Unreadable,
}

const RESULTS: [&str; 6] = ["allowed", "limited", "unavailable", "refused", "other", "unreadable"];

/// The series of one listener.
pub(crate) struct RpcMetrics {
    enabled: bool,
    requests: [Counter; RESULTS.len()],
    tracer: Option<Tracer>,
}

impl RpcMetrics {
    pub(crate) fn new(telemetry: &Telemetry, listener: &'static str) -> Self {
        let requests = telemetry.register(|| {
            describe_counter!(REQUESTS, "Requests answered by listeners whose answers are no HTTP statuses.");
            RESULTS.map(|result| counter!(REQUESTS, "listener" => listener, "result" => result))
        });
        Self { enabled: telemetry.is_enabled(), requests, tracer: None }
    }

    /// Makes a span of every request from now on.
    pub(crate) fn traced_by(mut self, tracer: Option<Tracer>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Answers a request, as a span of this name where it is traced.
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

/// Counts descriptors that no rule is for, and that were let pass.
pub(crate) struct Unmatched {
    enabled: bool,
    descriptors: Counter,
}

impl Unmatched {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let descriptors = telemetry.register(|| {
            describe_counter!(UNMATCHED, "Descriptors that no rule is for, and that were let pass.");
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
