//! Sends spans to a collector, in batches. A collector that is away costs the spans and nothing else.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::Full;
use metrics::Counter;
use serde_json::{Value, json};
use tokio::sync::mpsc;
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

pub(super) struct Exporter {
    pub(super) target: Target,
    pub(super) service: String,
    pub(super) gather: Duration,
    pub(super) to_send: mpsc::Receiver<Finished>,
    pub(super) sent: Counter,
    pub(super) lost: Counter,
}

impl Exporter {
    pub(super) async fn run(mut self) {
        while let Some(first) = self.to_send.recv().await {
            let mut spans = vec![first];
            let company = async {
                while spans.len() < BATCH {
                    let Some(span) = self.to_send.recv().await else { return };
                    spans.push(span);
                }
            };
            // A batch that is not full when the time is up goes as it is.
            let _full_in_time = timeout(self.gather, company).await;
            let count = spans.len() as u64;
            if self.send(&spans).await { self.sent.increment(count) } else { self.lost.increment(count) }
        }
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
