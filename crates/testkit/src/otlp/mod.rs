//! A collector of traces. It decodes what it receives with the types that the authors of OTLP publish, so that what they would
//! not understand fails a test.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub use opentelemetry_proto::tonic::trace::v1::Span;
pub use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
pub use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// How long spans may take to arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// A collector in this process.
pub struct Collector {
    /// The URL of the collector, without a path.
    pub endpoint: String,
    received: mpsc::UnboundedReceiver<Export>,
}

/// One request to the collector.
#[derive(Debug)]
pub struct Export {
    /// The path that was posted to.
    pub path: String,
    /// The header fields of the request.
    pub headers: HeaderMap,
    /// The body as it was sent.
    pub text: String,
    request: ExportTraceServiceRequest,
}

impl Collector {
    /// Starts a collector that accepts everything.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (keep, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keep = keep.clone();
                let service = service_fn(move |request| collect(request, keep.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { endpoint, received }
    }

    /// Waits for the next request.
    pub async fn next(&mut self) -> Export {
        let next = tokio::time::timeout(PATIENCE, self.received.recv()).await;
        next.expect("spans in time").expect("the collector runs")
    }

    /// A request that has arrived. `None` if the queue is empty.
    pub fn try_next(&mut self) -> Option<Export> {
        self.received.try_recv().ok()
    }

    /// Waits until this many spans have arrived.
    pub async fn spans(&mut self, count: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        while spans.len() < count {
            spans.extend(self.next().await.into_spans());
        }
        spans
    }
}

async fn collect(
    request: Request<Incoming>,
    keep: mpsc::UnboundedSender<Export>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let request = serde_json::from_slice(&body).expect("the body is OTLP in JSON");
    let (path, text) = (parts.uri.path().to_owned(), String::from_utf8_lossy(&body).into_owned());
    let _kept = keep.send(Export { path, headers: parts.headers, text, request });
    Ok(Response::new(Full::from("{}")))
}

impl Export {
    /// An attribute of the process that sent the spans.
    pub fn resource(&self, key: &str) -> Option<String> {
        find(&self.request.resource_spans[0].resource.as_ref()?.attributes, key)
    }

    /// Name and version of the library that made the spans.
    pub fn scope(&self) -> Option<(&str, &str)> {
        let scope = self.request.resource_spans[0].scope_spans[0].scope.as_ref()?;
        Some((&scope.name, &scope.version))
    }

    /// The spans of the request.
    pub fn into_spans(self) -> Vec<Span> {
        let scopes = self.request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

/// An attribute of a span with its type: `200` for a number, `"200"` for a text. `None` if the span has none of this name.
pub fn attribute(span: &Span, key: &str) -> Option<String> {
    find(&span.attributes, key)
}

/// An id of a trace or a span, as `traceparent` has it.
pub fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// The status of a span.
pub fn status(span: &Span) -> StatusCode {
    span.status.as_ref().map_or(StatusCode::Unset, opentelemetry_proto::tonic::trace::v1::Status::code)
}

/// The only span of this name.
pub fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    let [only] = found[..] else { panic!("{} spans are called {name} in {spans:#?}", found.len()) };
    only
}

fn find(attributes: &[KeyValue], key: &str) -> Option<String> {
    let mut values = attributes.iter().filter(|attribute| attribute.key == key);
    let value = values.next()?;
    assert!(values.next().is_none(), "{key} is there twice");
    match value.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(format!("{text:?}")),
        Value::IntValue(number) => Some(number.to_string()),
        Value::BoolValue(flag) => Some(flag.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}
