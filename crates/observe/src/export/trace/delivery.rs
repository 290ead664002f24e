//! Posts spans to a collector as OTLP in JSON. While the collector is down spans are lost, and nothing else happens.

use std::time::Duration;

use bytes::Bytes;
use metrics::Counter;
use serde_json::{Value, json};

use super::span::FinishedSpan;
use crate::export::HttpEndpoint;
use crate::export::batch::Delivery;

/// How long the collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What OTLP calls the span of a server, the span of a client, and a span within either.
const SERVER: u32 = 2;
const CLIENT: u32 = 3;
const INTERNAL: u32 = 1;

/// Posts batches of spans to one collector.
pub(super) struct SpanDelivery {
    pub(super) endpoint: HttpEndpoint,
    pub(super) service: String,
    pub(super) sent: Counter,
    pub(super) lost: Counter,
}

impl Delivery for SpanDelivery {
    type Item = FinishedSpan;

    async fn deliver(&self, spans: &[FinishedSpan]) {
        let body = Bytes::from(self.document(spans).to_string());
        let posted = self.endpoint.post(&[], body, TIMEOUT).await;
        let counter = if posted.is_ok() { &self.sent } else { &self.lost };
        counter.increment(spans.len() as u64);
    }

    fn abandon(&self, spans: usize) {
        self.lost.increment(spans as u64);
        tracing::warn!(target: "spile::trace", spans, "not sent: the export was stopped first");
    }
}

impl SpanDelivery {
    fn document(&self, spans: &[FinishedSpan]) -> Value {
        let service = json!([{"key": "service.name", "value": {"stringValue": self.service}}]);
        let spans: Vec<_> = spans.iter().map(span).collect();
        let scope = json!({"name": "spile", "version": env!("CARGO_PKG_VERSION")});
        json!({"resourceSpans": [{
            "resource": {"attributes": service},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]})
    }
}

fn span(span: &FinishedSpan) -> Value {
    let attribute = |(key, value): &(&str, String)| json!({"key": key, "value": {"stringValue": value}});
    let kind = match span.name {
        "http request" => SERVER,
        "proxy" => CLIENT,
        _ => INTERNAL,
    };
    let mut document = json!({
        "traceId": format!("{:032x}", span.context.trace_id),
        "spanId": format!("{:016x}", span.context.span_id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": (span.began_us * 1_000).to_string(),
        "endTimeUnixNano": (span.ended_us * 1_000).to_string(),
        "attributes": span.attributes.iter().map(attribute).collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        document["parentSpanId"] = format!("{:016x}", parent.span_id).into();
    }
    document
}
