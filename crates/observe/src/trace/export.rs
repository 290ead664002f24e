//! Sends spans to a collector, in batches. A collector that is away costs the spans and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::Full;
use metrics::Counter;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::span::Finished;
use crate::webhook::Target;

/// Spans that go at once.
const BATCH: usize = 512;
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What OTLP calls the span of a server, of a client, and one within either.
const SERVER: u32 = 2;
const CLIENT: u32 = 3;
const INTERNAL: u32 = 1;

/// Spans being sent. Dropping this changes nothing.
#[derive(Debug)]
pub struct Exporting {
    pub(super) stop: Arc<Notify>,
    pub(super) task: JoinHandle<()>,
}

impl Exporting {
    /// Takes no new spans. Those that wait still go out, for as long as `patience` lasts; the rest is counted as lost.
    pub async fn finish(mut self, patience: Duration) {
        self.stop.notify_one();
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
            // Once it has ended, what is lost has been counted.
            let _ended = self.task.await;
        }
    }
}

pub(super) struct Exporter {
    pub(super) target: Target,
    pub(super) service: String,
    pub(super) gather: Duration,
    pub(super) to_send: mpsc::Receiver<Finished>,
    /// Spans that are being sent.
    pub(super) in_hand: usize,
    pub(super) stop: Arc<Notify>,
    pub(super) sent: Counter,
    pub(super) lost: Counter,
}

impl Exporter {
    pub(super) async fn run(mut self) {
        while let Some(first) = self.next().await {
            let (gather, mut spans) = (self.gather, vec![first]);
            self.in_hand = 1;
            let company = async {
                while spans.len() < BATCH {
                    let Some(span) = self.next().await else { return };
                    spans.push(span);
                    self.in_hand = spans.len();
                }
            };
            // A batch that is not full when the time is up goes as it is.
            let _full_in_time = timeout(gather, company).await;
            let is_sent = self.send(&spans).await;
            let count = std::mem::take(&mut self.in_hand) as u64;
            if is_sent { self.sent.increment(count) } else { self.lost.increment(count) }
        }
    }

    /// The next span. Once it is time to stop: what waits, and then none.
    async fn next(&mut self) -> Option<Finished> {
        if !self.to_send.is_closed() {
            tokio::select! {
                span = self.to_send.recv() => return span,
                () = self.stop.notified() => self.to_send.close(),
            }
        }
        self.to_send.recv().await
    }

    async fn send(&self, spans: &[Finished]) -> bool {
        let request = Request::post(self.target.path())
            .header(HOST, self.target.authority())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(self.document(spans).to_string())))
            .expect("the target was parsed from a URL, and the rest is ours");
        let answer = timeout(PATIENCE, self.target.send(request)).await;
        matches!(answer, Ok(Ok(status)) if status.is_success())
    }

    fn document(&self, spans: &[Finished]) -> Value {
        let service = json!([{"key": "service.name", "value": {"stringValue": self.service}}]);
        let spans: Vec<_> = spans.iter().map(span).collect();
        let scope = json!({"name": "spile", "version": env!("CARGO_PKG_VERSION")});
        json!({"resourceSpans": [{
            "resource": {"attributes": service},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]})
    }
}

/// What is given up is counted and said.
impl Drop for Exporter {
    fn drop(&mut self) {
        let left = self.in_hand + self.to_send.len();
        if left > 0 {
            self.lost.increment(left as u64);
            tracing::warn!(target: "spile::trace", spans = left, "not sent: the time to stop is up");
        }
    }
}

fn span(finished: &Finished) -> Value {
    let note = |(key, value): &(&str, String)| json!({"key": key, "value": {"stringValue": value}});
    let kind = match finished.name {
        "http request" => SERVER,
        "proxy" => CLIENT,
        _ => INTERNAL,
    };
    let mut span = json!({
        "traceId": format!("{:032x}", finished.context.trace_id),
        "spanId": format!("{:016x}", finished.context.span_id),
        "name": finished.name,
        "kind": kind,
        "startTimeUnixNano": (finished.began_us * 1_000).to_string(),
        "endTimeUnixNano": (finished.ended_us * 1_000).to_string(),
        "attributes": finished.notes.iter().map(note).collect::<Vec<_>>(),
    });
    if let Some(parent) = finished.parent {
        span["parentSpanId"] = format!("{:016x}", parent.span_id).into();
    }
    span
}
