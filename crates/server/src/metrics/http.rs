//! Counts, times and, where somebody asked for it, traces every HTTP request of one listener.

use std::sync::OnceLock;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use metrics::{Counter, Histogram, counter, histogram};
use spile_core::{Clock, Micros, SystemClock};
use spile_observe::trace::{self, TraceContext, Tracer};

use super::{HTTP_DURATION, Telemetry};

/// Status codes run from 100 to 599.
const STATUSES: usize = 500;

/// The series of one listener.
pub(crate) struct HttpMetrics {
    telemetry: Telemetry,
    listener: &'static str,
    clock: SystemClock,
    requests: Box<[OnceLock<Counter>]>,
    duration: Histogram,
    tracer: Option<Tracer>,
}

impl HttpMetrics {
    pub(crate) fn new(telemetry: Telemetry, listener: &'static str) -> Self {
        let duration = telemetry.register(|| histogram!(HTTP_DURATION, "listener" => listener));
        let requests = (0..STATUSES).map(|_| OnceLock::new()).collect();
        Self { telemetry, listener, clock: SystemClock::new(), requests, duration, tracer: None }
    }

    /// Makes a span of every request from now on.
    pub(crate) fn traced_by(mut self, tracer: Option<Tracer>) -> Self {
        self.tracer = tracer;
        self
    }

    /// The trace that a request belongs to, where anybody wants to know.
    pub(crate) fn context_of<B>(&self, request: &Request<B>) -> Option<TraceContext> {
        self.tracer.as_ref()?;
        request.headers().get("traceparent")?.to_str().ok().and_then(TraceContext::parse)
    }

    /// Answers a request, as a span where it is traced.
    pub(crate) fn traced<B>(
        &self,
        came_with: Option<TraceContext>,
        answer: impl Future<Output = Response<B>>,
    ) -> impl Future<Output = Response<B>> {
        let noted = answer.inspect(|response| {
            trace::note("http.response.status_code", || response.status().as_str().to_owned());
        });
        Tracer::maybe(self.tracer.as_ref(), "http request", came_with, noted)
    }

    pub(crate) fn started(&self) -> Micros {
        if self.telemetry.is_enabled() { self.clock.now() } else { Micros::default() }
    }

    pub(crate) fn answered(&self, started: Micros, status: StatusCode) {
        if !self.telemetry.is_enabled() {
            return;
        }
        let index = usize::from(status.as_u16() - 100).min(STATUSES - 1);
        let counter = self.requests[index].get_or_init(|| {
            let status = status.as_str().to_owned();
            self.telemetry.register(
                || counter!("http_server_requests_total", "listener" => self.listener, "status" => status),
            )
        });
        counter.increment(1);
        self.duration.record(self.clock.now().since_us(started) as f64 / 1e6);
    }
}
