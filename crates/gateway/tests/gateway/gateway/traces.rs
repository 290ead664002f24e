//! Spans of requests, decisions and proxying, against an OTLP collector in this process.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use spile_core::FakeClock;
use spile_gateway::{Gateway, GatewayBuilder};
use spile_memory::MemoryStore;
use spile_observe::Watch;
use spile_observe::trace::{Otlp, Tracer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{Backend, by_tenant_or_address, in_time, limiter_on, plan, policy, running, to};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const STATE: (&str, &str) = ("tracestate", "vendor=opaque");

/// A collector and the spans that it receives.
struct Collector {
    tracer: Tracer,
    documents: mpsc::UnboundedReceiver<Value>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound socket"));
        let (keep, documents) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keep = keep.clone();
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let keep = keep.clone();
                    async move {
                        let body = request.into_body().collect().await?.to_bytes();
                        let _kept = keep.send(serde_json::from_slice(&body).expect("OTLP in JSON"));
                        Ok::<_, hyper::Error>(http::Response::new(Full::<bytes::Bytes>::default()))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        let otlp = Otlp::new(&endpoint).expect("an endpoint").gather(Duration::from_millis(20));
        let (tracer, _sending) = otlp.start(&Watch::builder().build());
        Self { tracer, documents }
    }

    /// Waits until this many spans have arrived.
    async fn spans(&mut self, count: usize) -> Vec<Value> {
        let mut spans = Vec::new();
        while spans.len() < count {
            let document = in_time("spans", self.documents.recv()).await.expect("the collector runs");
            let some = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned();
            spans.extend(some.expect("spans"));
        }
        spans
    }
}

fn limited(backend: &Backend, clock: &FakeClock) -> GatewayBuilder<MemoryStore<std::sync::Arc<FakeClock>>> {
    Gateway::builder(limiter_on(clock))
        .clock(clock.clone())
        .route(to(backend.upstream()).named("scores"))
        .policy(policy([plan("free", 1, 1)], [by_tenant_or_address("default")]))
}

fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name} in {spans:?}"))
}

fn note<'s>(span: &'s Value, key: &str) -> &'s Value {
    let notes = span["attributes"].as_array().expect("attributes");
    &notes.iter().find(|note| note["key"] == key).unwrap_or_else(|| panic!("{key} in {span}"))["value"]["stringValue"]
}

#[tokio::test]
async fn request_decision_and_proxying_are_one_trace_that_goes_on_at_the_upstream() {
    let (backend, mut collector) = (Backend::friendly().await, Collector::start().await);
    let gateway = running(limited(&backend, &FakeClock::default()).tracer(collector.tracer.clone())).await;
    let answer = gateway.get("/secret/path?key=1", &[("traceparent", PARENT), STATE]).await;
    assert_eq!(answer.status, 200);
    let spans = collector.spans(3).await;
    let (request, decision, proxy) =
        (named(&spans, "http request"), named(&spans, "decision"), named(&spans, "proxy"));
    for span in [request, decision, proxy] {
        assert_eq!(span["traceId"], TRACE);
    }
    assert_eq!(request["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!((&decision["parentSpanId"], &proxy["parentSpanId"]), (&request["spanId"], &request["spanId"]));
    let seen = backend.last();
    let passed_on = format!("00-{TRACE}-{}-01", proxy["spanId"].as_str().expect("an id"));
    assert_eq!(seen.header("traceparent"), Some(passed_on.as_str()), "the upstream works below the proxying");
    assert_eq!(seen.header("tracestate"), Some(STATE.1));
    assert_eq!((&request["kind"], &proxy["kind"]), (&2.into(), &3.into()), "a server's and a client's");
    assert_eq!(note(request, "http.response.status_code"), "200");
    assert_eq!(
        (note(decision, "spile.reason"), note(proxy, "spile.route")),
        (&"ok".into(), &"scores".into())
    );
    let said = serde_json::to_string(&spans).expect("JSON");
    assert!(
        !said.contains("127.0.0.1") && !said.contains("secret"),
        "no key and no path leaves the house: {said}"
    );
}

#[tokio::test]
async fn a_denied_request_has_no_proxying_and_a_failed_one_says_so() {
    let (backend, mut collector) = (Backend::friendly().await, Collector::start().await);
    let gateway = running(limited(&backend, &FakeClock::default()).tracer(collector.tracer.clone())).await;
    gateway.get("/", &[]).await;
    assert_eq!(gateway.get("/", &[]).await.status, 429);
    let spans = collector.spans(5).await;
    assert_eq!(spans.iter().filter(|span| span["name"] == "proxy").count(), 1);
    let reasons: Vec<_> = spans.iter().filter(|span| span["name"] == "decision").collect();
    assert!(reasons.iter().any(|span| note(span, "spile.reason") == "limited"), "{reasons:?}");

    let nobody = "http://127.0.0.1:1".parse().expect("an upstream");
    let alone = Gateway::builder(limiter_on(&FakeClock::default())).route(to(nobody).retries(0));
    let gateway = running(alone.tracer(collector.tracer.clone())).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502);
    let spans = collector.spans(2).await;
    assert_eq!(note(named(&spans, "proxy"), "spile.upstream_answer"), "Unreachable");
}

#[tokio::test]
async fn a_context_that_cannot_be_read_starts_a_new_trace_without_its_state() {
    let (backend, collector) = (Backend::friendly().await, Collector::start().await);
    let gateway = running(limited(&backend, &FakeClock::default()).tracer(collector.tracer)).await;
    gateway.get("/", &[("traceparent", "00-nonsense"), STATE]).await;
    let seen = backend.last();
    assert!(seen.header("traceparent").is_some_and(|parent| parent.len() == PARENT.len()));
    assert_eq!(seen.header("tracestate"), None);
}

#[tokio::test]
async fn what_nobody_traces_goes_through_as_it_is() {
    let unsampled = PARENT.replace("-01", "-00");
    let backend = Backend::friendly().await;
    let untraced = running(limited(&backend, &FakeClock::default())).await;
    let odd = [("traceparent", "odd"), STATE];
    untraced.get("/", &odd).await;
    assert_eq!(
        (backend.last().header("traceparent"), backend.last().header("tracestate")),
        (Some("odd"), Some(STATE.1))
    );

    let collector = Collector::start().await;
    let traced = running(limited(&backend, &FakeClock::default()).tracer(collector.tracer)).await;
    traced.get("/", &[("traceparent", &unsampled), STATE]).await;
    let seen = backend.last();
    assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(&*unsampled), Some(STATE.1)));
}
