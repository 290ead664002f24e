//! Spans of requests, decisions and proxying, against an OTLP collector in this process.

use std::time::Duration;

use spile_core::FakeClock;
use spile_gateway::{Gateway, GatewayBuilder};
use spile_memory::MemoryStore;
use spile_observe::Watch;
use spile_observe::trace::{Otlp, Tracer};
use spile_testkit::otlp::{Collector, Span, SpanKind, StatusCode, attribute, hex, named, status};

use crate::support::{Backend, by_tenant_or_address, limiter_on, plan, policy, running, to};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const STATE: (&str, &str) = ("tracestate", "vendor=opaque");

fn tracer(collector: &Collector) -> Tracer {
    let otlp = Otlp::new(&collector.endpoint).expect("an endpoint").gather(Duration::from_millis(20));
    otlp.start(&Watch::builder().build()).0
}

/// The only span of this kind.
fn of_kind(spans: &[Span], kind: SpanKind) -> &Span {
    let found: Vec<_> = spans.iter().filter(|span| span.kind() == kind).collect();
    let [only] = found[..] else { panic!("{} are {kind:?} in {spans:#?}", found.len()) };
    only
}

fn limited(backend: &Backend, clock: &FakeClock) -> GatewayBuilder<MemoryStore<std::sync::Arc<FakeClock>>> {
    Gateway::builder(limiter_on(clock))
        .clock(clock.clone())
        .route(to(backend.upstream()).named("scores"))
        .policy(policy([plan("free", 1, 1)], [by_tenant_or_address("default")]))
}

/// An attribute of a span: texts are between quotation marks.
fn said(span: &Span, key: &str) -> String {
    attribute(span, key).unwrap_or_else(|| panic!("{key} in {span:#?}"))
}

#[tokio::test]
async fn request_decision_and_proxying_are_one_trace_that_goes_on_at_the_upstream() {
    let (backend, mut collector) = (Backend::friendly().await, Collector::start().await);
    let gateway = running(limited(&backend, &FakeClock::default()).tracer(tracer(&collector))).await;
    let answer = gateway.get("/secret/path?key=1", &[("traceparent", PARENT), STATE]).await;
    assert_eq!(answer.status, 200);
    let spans = collector.spans(3).await;
    let (request, decision) = (named(&spans, "GET /*"), named(&spans, "decision"));
    let proxy = of_kind(&spans, SpanKind::Client);
    for span in [request, decision, proxy] {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(status(span), StatusCode::Unset);
    }
    assert_eq!(hex(&request.parent_span_id), "00f067aa0ba902b7");
    assert_eq!((&decision.parent_span_id, &proxy.parent_span_id), (&request.span_id, &request.span_id));
    let seen = backend.last();
    let passed_on = format!("00-{TRACE}-{}-01", hex(&proxy.span_id));
    assert_eq!(seen.header("traceparent"), Some(passed_on.as_str()), "the upstream works below the proxying");
    assert_eq!(seen.header("tracestate"), Some(STATE.1));
    assert_eq!((request.kind(), decision.kind()), (SpanKind::Server, SpanKind::Internal));
    assert_eq!(proxy.name, "GET");
    for span in [request, proxy] {
        assert_eq!(said(span, "http.request.method"), "\"GET\"");
        assert_eq!(said(span, "http.response.status_code"), "200");
        assert_eq!(said(span, "network.protocol.version"), "\"1.1\"");
        assert_eq!(said(span, "spile.route"), "\"scores\"");
    }
    assert_eq!(
        (said(request, "http.route"), said(request, "url.scheme")),
        ("\"/*\"".into(), "\"http\"".into())
    );
    let upstream = backend.upstream().label();
    let (host, port) = upstream.rsplit_once(':').expect("an address");
    assert_eq!(said(proxy, "server.address"), format!("{host:?}"));
    assert_eq!(said(proxy, "server.port"), port);
    assert_eq!(said(decision, "spile.reason"), "\"ok\"");
    let everything = format!("{spans:?}");
    for key in ["secret", "client.address", "key=1"] {
        assert!(!everything.contains(key), "no key and no path leaves the house: {key} in {everything}");
    }
}

#[tokio::test]
async fn a_denied_request_has_no_proxying_and_is_no_failure_of_the_server() {
    let (backend, mut collector) = (Backend::friendly().await, Collector::start().await);
    let gateway = running(limited(&backend, &FakeClock::default()).tracer(tracer(&collector))).await;
    gateway.get("/", &[]).await;
    assert_eq!(gateway.get("/", &[]).await.status, 429);
    let spans = collector.spans(5).await;
    of_kind(&spans, SpanKind::Client);
    let limited = |span: &&Span| attribute(span, "http.response.status_code").as_deref() == Some("429");
    let denied = spans.iter().find(limited).expect("a request that was denied");
    assert_eq!((denied.kind(), status(denied)), (SpanKind::Server, StatusCode::Unset));
    assert_eq!(attribute(denied, "error.type"), None);
    let reasons = spans.iter().filter(|span| span.name == "decision").map(|span| said(span, "spile.reason"));
    assert!(reasons.collect::<Vec<_>>().contains(&"\"limited\"".to_owned()), "{spans:#?}");
}

#[tokio::test]
async fn a_request_that_no_upstream_answers_has_failed_and_says_why() {
    let mut collector = Collector::start().await;
    let closed = "http://127.0.0.1:1".parse().expect("an upstream");
    let alone = Gateway::builder(limiter_on(&FakeClock::default())).route(to(closed).retries(0));
    let gateway = running(alone.tracer(tracer(&collector))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502);
    assert_eq!(gateway.get("/", &[("content-type", "application/grpc")]).await.status, 200);
    let spans = collector.spans(4).await;
    assert!(spans.iter().all(|span| status(span) == StatusCode::Error), "{spans:#?}");
    let why = |kind: SpanKind| {
        let of_kind = spans.iter().filter(move |span| span.kind() == kind);
        of_kind.map(|span| said(span, "error.type")).collect::<Vec<_>>()
    };
    assert_eq!(why(SpanKind::Client), ["\"unreachable\"", "\"unreachable\""]);
    assert_eq!(why(SpanKind::Server), ["\"502\"", "\"14\""], "the second is a call of gRPC");
    let proxy = spans.iter().find(|span| span.kind() == SpanKind::Client).expect("a span");
    assert_eq!(
        (said(proxy, "server.address"), said(proxy, "server.port")),
        ("\"127.0.0.1\"".into(), "1".into())
    );
}

#[tokio::test]
async fn a_context_that_cannot_be_read_starts_a_new_trace_without_its_state() {
    let (backend, collector) = (Backend::friendly().await, Collector::start().await);
    let gateway = running(limited(&backend, &FakeClock::default()).tracer(tracer(&collector))).await;
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
    let traced = running(limited(&backend, &FakeClock::default()).tracer(tracer(&collector))).await;
    traced.get("/", &[("traceparent", &unsampled), STATE]).await;
    let seen = backend.last();
    assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(&*unsampled), Some(STATE.1)));
}
