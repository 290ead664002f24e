//! Spans for OpenTelemetry, sent as OTLP over HTTP in JSON. Without a [`Tracer`] they cost nothing; with one, a task that is not traced
//! costs one read of a task-local.
//!
//! Written by hand, because a few kinds of span need neither a global subscriber nor a second HTTP client.

mod attribute;
mod context;
mod delivery;
mod headers;
mod span;

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio::sync::mpsc;

pub use self::attribute::{
    AttributeValue, note_error, note_method, note_request, note_response, note_route, note_server,
    note_version,
};
pub use self::context::TraceContext;
use self::delivery::SpanDelivery;
pub use self::headers::{OtlpHeaderError, OtlpHeaders};
use self::span::{ActiveSpan, FinishedSpan, kind};
pub use self::span::{Instrumented, SpanKind, current, note, span};
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
#[derive(Clone, Debug, PartialEq)]
#[must_use = "call start()"]
pub struct Otlp {
    endpoint: HttpEndpoint,
    headers: OtlpHeaders,
    /// The attributes of the process that sends spans.
    resource: BTreeMap<String, String>,
    ratio: f64,
    max_wait: Duration,
}

impl Otlp {
    /// Sends spans to the collector at `endpoint`, such as `http://127.0.0.1:4318`.
    pub fn new(endpoint: &str) -> Result<Self, DeliveryError> {
        let mut endpoint = HttpEndpoint::parse(&format!("{}/v1/traces", endpoint.trim_end_matches('/')))?;
        // Only the operator can choose the collector, so a private address is not a risk.
        endpoint.private_allowed = true;
        let (name, version) = ("service.name".to_owned(), "service.version".to_owned());
        let resource = [(name, "spile".to_owned()), (version, env!("CARGO_PKG_VERSION").to_owned())];
        Ok(Self {
            endpoint,
            headers: OtlpHeaders::default(),
            resource: resource.into(),
            ratio: 1.0,
            max_wait: Duration::from_secs(1),
        })
    }

    /// Sends these header fields along, such as the credentials that the collector requires.
    pub fn headers(mut self, headers: OtlpHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Whether header fields are sent along.
    pub fn has_headers(&self) -> bool {
        !self.headers.0.is_empty()
    }

    /// Sets an attribute of the process that sends spans. Overrides `service.name` (`spile`), `service.version` and `service.instance.id`
    /// (random).
    pub fn resource(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.resource.insert(name.into(), value.into());
        self
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

    /// Starts to send spans. Ends when the last tracer is dropped, or when the task is asked to finish.
    pub fn start(mut self, watch: &Watch) -> (Tracer, ExportTask) {
        let (finished, queue) = mpsc::channel(QUEUE);
        let result = |result: &'static str| counter!(SPANS, "result" => result);
        let [sent, lost, dropped] = watch.register(|| {
            describe_counter!(SPANS, "Spans, by result: sent, lost or dropped.");
            [result("sent"), result("lost"), result("dropped")]
        });
        self.resource.entry("service.instance.id".to_owned()).or_insert_with(instance_id);
        let delivery = SpanDelivery::new(self.endpoint, self.headers, &self.resource, [sent, lost]);
        let sender = BatchSender::new(delivery, queue, BATCH, self.max_wait);
        let tracer = Tracer { finished, dropped, ratio: self.ratio };
        (tracer, ExportTask::spawn(|stop| sender.run(stopped(stop))))
    }
}

impl Tracer {
    /// Runs `work`, which answers a request, as a span: a child of `parent`, or the first span of a new trace.
    pub fn trace<F: Future>(
        &self,
        name: &'static str,
        parent: Option<TraceContext>,
        work: F,
    ) -> Instrumented<F> {
        Self::maybe(Some(self), name, parent, work)
    }

    /// Runs `work` in a span if there is a tracer, else without one.
    pub fn maybe<F: Future>(
        tracer: Option<&Self>,
        name: &'static str,
        parent: Option<TraceContext>,
        work: F,
    ) -> Instrumented<F> {
        let sampled =
            |tracer: &&Self| parent.map_or_else(|| fastrand::f64() < tracer.ratio, TraceContext::is_sampled);
        let tracer = tracer.filter(sampled);
        Instrumented::new(
            tracer.map(|tracer| ActiveSpan::new(tracer.clone(), name, SpanKind::Server, parent)),
            work,
        )
    }

    /// Runs `work` as a span of the trace that this task is in. Without a tracer, the task-local is not read.
    pub fn within<F: Future>(
        tracer: Option<&Self>,
        name: &'static str,
        kind: SpanKind,
        work: F,
    ) -> Instrumented<F> {
        match tracer {
            None => Instrumented::new(None, work),
            Some(_) => span(name, kind, work),
        }
    }

    fn finish(&self, span: FinishedSpan) {
        if self.finished.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }
}

/// A random UUID. Distinguishes the spans of this process from those of others, also of one that ran here before.
fn instance_id() -> String {
    // The bits of version 4 and variant 1.
    let id = (fastrand::u128(..) & !(0xF << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
