//! Posts spans to a collector as OTLP in JSON. While the collector is down, spans are lost without other effects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use metrics::Counter;
use serde_json::{Value, json};

use super::attribute::{AttributeValue, ERROR, METHOD, OTHER_METHOD, ROUTE};
use super::headers::OtlpHeaders;
use super::span::{FinishedSpan, SpanKind};
use crate::export::batch::Delivery;
use crate::export::{DeliveryError, HttpEndpoint};

/// How long the collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The status code of OTLP for a span that failed.
const FAILED: u32 = 2;

/// Posts batches of spans to one collector.
pub(super) struct SpanDelivery {
    endpoint: HttpEndpoint,
    headers: OtlpHeaders,
    resource: Value,
    sent: Counter,
    lost: Counter,
    /// Whether the last batch was lost. Only changes are logged.
    failing: AtomicBool,
}

impl Delivery for SpanDelivery {
    type Item = FinishedSpan;

    async fn deliver(&self, spans: &[FinishedSpan]) {
        let body = Bytes::from(self.document(spans).to_string());
        let posted = self.endpoint.post(&self.headers.0, body, TIMEOUT).await;
        let counter = if posted.is_ok() { &self.sent } else { &self.lost };
        counter.increment(spans.len() as u64);
        self.log_change(posted.err());
    }

    fn abandon(&self, spans: usize) {
        self.lost.increment(spans as u64);
        tracing::warn!(target: "spile::trace", spans, "not sent: the export was stopped first");
    }
}

impl SpanDelivery {
    pub(super) fn new(
        endpoint: HttpEndpoint,
        headers: OtlpHeaders,
        resource: &BTreeMap<String, String>,
        [sent, lost]: [Counter; 2],
    ) -> Self {
        let attributes =
            resource.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
        let resource = json!({"attributes": attributes.collect::<Vec<_>>()});
        Self { endpoint, headers, resource, sent, lost, failing: AtomicBool::new(false) }
    }

    /// Logs once that spans are lost and why, and once that they arrive again.
    fn log_change(&self, failed: Option<DeliveryError>) {
        let host = self.endpoint.host();
        match (self.failing.swap(failed.is_some(), Ordering::Relaxed), failed) {
            (false, Some(why)) => tracing::warn!(target: "spile::trace", host, "spans are lost: {why}"),
            (true, None) => tracing::info!(target: "spile::trace", host, "spans arrive again"),
            _ => {}
        }
    }

    fn document(&self, spans: &[FinishedSpan]) -> Value {
        let spans: Vec<_> = spans.iter().map(span).collect();
        let scope = json!({"name": "spile", "version": env!("CARGO_PKG_VERSION")});
        json!({"resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]})
    }
}

fn span(span: &FinishedSpan) -> Value {
    let attribute = |(key, value): &(&str, AttributeValue)| json!({"key": key, "value": any_value(value)});
    // OTLP's own numbers.
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let mut document = json!({
        "traceId": format!("{:032x}", span.context.trace_id),
        "spanId": format!("{:016x}", span.context.span_id),
        "name": name(span),
        "kind": kind,
        "startTimeUnixNano": (span.began_us * 1_000).to_string(),
        "endTimeUnixNano": (span.ended_us * 1_000).to_string(),
        "attributes": span.attributes.iter().map(attribute).collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        document["parentSpanId"] = format!("{:016x}", parent.span_id).into();
    }
    if text(span, ERROR).is_some() {
        document["status"] = json!({"code": FAILED});
    }
    document
}

/// JSON numbers are exact up to 53 bits, so OTLP writes integers as strings.
fn any_value(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
    }
}

/// HTTP spans are named by their method and route, as in `GET /scores`. Other spans keep their names.
fn name(span: &FinishedSpan) -> Cow<'static, str> {
    let Some(method) = text(span, METHOD) else { return span.name.into() };
    let method = if method == OTHER_METHOD { "HTTP" } else { method };
    text(span, ROUTE).map_or_else(|| method.to_owned(), |route| format!("{method} {route}")).into()
}

fn text<'s>(span: &'s FinishedSpan, key: &str) -> Option<&'s str> {
    span.attributes.iter().find_map(|(name, value)| match value {
        AttributeValue::Text(text) if *name == key => Some(&**text),
        _ => None,
    })
}
