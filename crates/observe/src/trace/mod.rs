//! Spans for OpenTelemetry, sent as OTLP over HTTP in JSON. Off unless somebody makes a [`Tracer`], and then free: a
//! task without a span costs one look at a task-local.
//!
//! By hand and small, because three kinds of span need neither a global subscriber nor a second HTTP client.

mod context;
mod export;
mod span;

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio::sync::{Notify, mpsc};

pub use self::context::TraceContext;
use self::export::Exporter;
pub use self::export::Exporting;
use self::span::{Finished, Scope};
pub use self::span::{Spanned, current, note, span};
use crate::watch::Watch;
use crate::webhook::{Target, WebhookError};

const SPANS: &str = "ratelimit_trace_spans_total";
/// Spans that wait to be sent; more are dropped and counted.
const QUEUE: usize = 4_096;

/// Makes spans and sends them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer {
    finished: mpsc::Sender<Finished>,
    dropped: Counter,
    ratio: f64,
}

/// Where spans go, and how many of them.
#[derive(Clone, Debug)]
#[must_use = "call start()"]
pub struct Otlp {
    target: Target,
    service: String,
    ratio: f64,
    gather: Duration,
}

impl Otlp {
    /// Spans go to the collector at `endpoint`: `http://127.0.0.1:4318`.
    pub fn new(endpoint: &str) -> Result<Self, WebhookError> {
        let mut target = Target::parse(&format!("{}/v1/traces", endpoint.trim_end_matches('/')))?;
        // The operator's own collector: it is nobody else's to choose.
        target.private_allowed = true;
        let (service, gather) = ("spile".to_owned(), Duration::from_secs(1));
        Ok(Self { target, service, ratio: 1.0, gather })
    }

    /// Begins a trace for this share of the requests that come without one. Those that come with one keep to it.
    pub const fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Waits this long for more spans before it sends what there is.
    pub const fn gather(mut self, gather: Duration) -> Self {
        self.gather = gather;
        self
    }

    /// Starts sending. Ends when the last tracer is gone, or when it is told to finish.
    pub fn start(self, watch: &Watch) -> (Tracer, Exporting) {
        let (finished, to_send) = mpsc::channel(QUEUE);
        let result = |result: &'static str| counter!(SPANS, "result" => result);
        let [sent, lost, dropped] = watch.register(|| {
            describe_counter!(SPANS, "Spans, by what became of them.");
            [result("sent"), result("lost"), result("dropped")]
        });
        let ratio = self.ratio;
        let stop = Arc::new(Notify::new());
        let exporter = Exporter {
            target: self.target,
            service: self.service,
            gather: self.gather,
            to_send,
            in_hand: 0,
            stop: Arc::clone(&stop),
            sent,
            lost,
        };
        (Tracer { finished, dropped, ratio }, Exporting { stop, task: tokio::spawn(exporter.run()) })
    }
}

impl Tracer {
    /// Runs `work` as a span: part of the trace that it came with, or of a new one.
    pub fn trace<F: Future>(
        &self,
        name: &'static str,
        came_with: Option<TraceContext>,
        work: F,
    ) -> Spanned<F> {
        Self::maybe(Some(self), name, came_with, work)
    }

    /// The same where there is a tracer; just `work` where there is none.
    pub fn maybe<F: Future>(
        tracer: Option<&Self>,
        name: &'static str,
        came_with: Option<TraceContext>,
        work: F,
    ) -> Spanned<F> {
        let sampled = |tracer: &&Self| {
            came_with.map_or_else(|| fastrand::f64() < tracer.ratio, TraceContext::is_sampled)
        };
        let tracer = tracer.filter(sampled);
        Spanned::new(tracer.map(|tracer| Scope::new(tracer.clone(), name, came_with)), work)
    }

    /// Runs `work` as a span of the trace that this task is in. Where there is no tracer there is nothing to look for.
    pub fn within<F: Future>(tracer: Option<&Self>, name: &'static str, work: F) -> Spanned<F> {
        match tracer {
            None => Spanned::new(None, work),
            Some(_) => span(name, work),
        }
    }

    fn finish(&self, span: Finished) {
        if self.finished.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }
}
