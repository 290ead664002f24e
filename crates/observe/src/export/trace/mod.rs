//! Spans for OpenTelemetry, sent as OTLP over HTTP in JSON. Without a [`Tracer`] they cost nothing; with one, a task
//! that is not traced costs one look at a task-local.
//!
//! Written by hand, because a few kinds of span need neither a global subscriber nor a second HTTP client.

mod context;
mod delivery;
mod span;

use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio::sync::mpsc;

pub use self::context::TraceContext;
use self::delivery::SpanDelivery;
use self::span::{ActiveSpan, FinishedSpan};
pub use self::span::{Instrumented, current, note, span};
use super::HttpEndpoint;
use super::batch::{BatchSender, stopped};
pub use crate::export::{DeliveryError, ExportTask};
use crate::watch::Watch;

const SPANS: &str = "ratelimit_trace_spans_total";
/// Spans that wait to be sent. More are dropped and counted.
const QUEUE: usize = 4_096;
/// The most spans of one batch.
const BATCH: usize = 512;

/// Makes spans and sends them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer {
    finished: mpsc::Sender<FinishedSpan>,
    dropped: Counter,
    ratio: f64,
}

/// Where spans are sent, and for which share of the requests.
#[derive(Clone, Debug)]
#[must_use = "call start()"]
pub struct Otlp {
    endpoint: HttpEndpoint,
    service: String,
    ratio: f64,
    max_wait: Duration,
}

impl Otlp {
    /// Sends spans to the collector at `endpoint`, such as `http://127.0.0.1:4318`.
    pub fn new(endpoint: &str) -> Result<Self, DeliveryError> {
        let mut endpoint = HttpEndpoint::parse(&format!("{}/v1/traces", endpoint.trim_end_matches('/')))?;
        // Only the operator can choose the collector, so that a private address is no risk.
        endpoint.private_allowed = true;
        Ok(Self { endpoint, service: "spile".to_owned(), ratio: 1.0, max_wait: Duration::from_secs(1) })
    }

    /// Begins a trace for this share of the requests that arrive without one. Requests that arrive with a trace follow
    /// its sampling flag.
    pub const fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Waits this long for more spans before a batch that is not full is sent.
    pub const fn gather(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// Starts to send spans. Ends when the last tracer is dropped, or when the task is told to finish.
    pub fn start(self, watch: &Watch) -> (Tracer, ExportTask) {
        let (finished, queue) = mpsc::channel(QUEUE);
        let result = |result: &'static str| counter!(SPANS, "result" => result);
        let [sent, lost, dropped] = watch.register(|| {
            describe_counter!(SPANS, "Spans, by result: sent, lost or dropped.");
            [result("sent"), result("lost"), result("dropped")]
        });
        let delivery = SpanDelivery { endpoint: self.endpoint, service: self.service, sent, lost };
        let sender = BatchSender::new(delivery, queue, BATCH, self.max_wait);
        let tracer = Tracer { finished, dropped, ratio: self.ratio };
        (tracer, ExportTask::spawn(|stop| sender.run(stopped(stop))))
    }
}

impl Tracer {
    /// Runs `work` as a span: a child of `parent`, or the first span of a new trace.
    pub fn trace<F: Future>(
        &self,
        name: &'static str,
        parent: Option<TraceContext>,
        work: F,
    ) -> Instrumented<F> {
        Self::maybe(Some(self), name, parent, work)
    }

    /// The same if there is a tracer. Without one, `work` runs without a span.
    pub fn maybe<F: Future>(
        tracer: Option<&Self>,
        name: &'static str,
        parent: Option<TraceContext>,
        work: F,
    ) -> Instrumented<F> {
        let sampled =
            |tracer: &&Self| parent.map_or_else(|| fastrand::f64() < tracer.ratio, TraceContext::is_sampled);
        let tracer = tracer.filter(sampled);
        Instrumented::new(tracer.map(|tracer| ActiveSpan::new(tracer.clone(), name, parent)), work)
    }

    /// Runs `work` as a span of the trace that this task is in. Without a tracer, no trace is looked for.
    pub fn within<F: Future>(tracer: Option<&Self>, name: &'static str, work: F) -> Instrumented<F> {
        match tracer {
            None => Instrumented::new(None, work),
            Some(_) => span(name, work),
        }
    }

    fn finish(&self, span: FinishedSpan) {
        if self.finished.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }
}
