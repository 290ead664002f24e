//! Tests traces against an OTLP collector in this process.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode as HttpStatus};
use metrics_exporter_prometheus::PrometheusBuilder;
use spile_observe::Watch;
use spile_observe::trace::{
    Otlp, OtlpHeaders, SpanKind, TraceContext, Tracer, current, note, note_request, note_response,
    note_route, span,
};
use spile_testkit::otlp::{Collector, SpanKind as OtlpKind, StatusCode, attribute, hex, named, status};
use tokio::net::TcpListener;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PATIENCE: Duration = Duration::from_secs(20);

fn tracer(endpoint: &str, ratio: f64) -> Tracer {
    let watch = Watch::builder().without_ticker().build();
    let otlp = Otlp::new(endpoint).expect("an endpoint").ratio(ratio).gather(Duration::from_millis(20));
    otlp.start(&watch).0
}

#[tokio::test]
async fn spans_belong_to_the_callers_trace_and_to_each_other() {
    let mut collector = Collector::start().await;
    let tracer = tracer(&collector.endpoint, 0.0);
    let passed_on = tracer
        .trace("resp throttle", TraceContext::parse(CALLER), async {
            span("store spend", SpanKind::Client, async { current() }).await
        })
        .await;
    let export = collector.next().await;
    assert_eq!(export.path, "/v1/traces");
    let spans = export.into_spans();
    let (store, request) = (named(&spans, "store spend"), named(&spans, "resp throttle"));
    for span in [store, request] {
        assert_eq!(hex(&span.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.start_time_unix_nano > 0);
    }
    assert_eq!(hex(&request.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(store.parent_span_id, request.span_id);
    assert_eq!((request.kind(), store.kind()), (OtlpKind::Server, OtlpKind::Client));
    let passed_on = passed_on.expect("the task is in a trace").to_string();
    assert!(passed_on.contains(&hex(&store.span_id)), "{passed_on}");
}

#[tokio::test]
async fn a_process_says_who_it_is_and_what_it_was_told_to_say() {
    let mut collector = Collector::start().await;
    let watch = Watch::builder().without_ticker().build();
    let mut headers = OtlpHeaders::default();
    headers.insert("Authorization", "Bearer hunter2").expect("a field");
    let otlp = Otlp::new(&collector.endpoint).expect("an endpoint").headers(headers);
    let otlp = otlp.resource("service.name", "edge").resource("deployment.environment.name", "test");
    assert!(!format!("{otlp:?}").contains("hunter2"), "{otlp:?}");
    let (tracer, exporting) = otlp.start(&watch);
    tracer.trace("resp throttle", None, async {}).await;
    exporting.finish(PATIENCE).await;
    let export = collector.next().await;
    assert_eq!(export.headers["authorization"], "Bearer hunter2");
    assert_eq!(export.headers["content-type"], "application/json");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(export.scope(), Some(("spile", version)));
    let says = |key| export.resource(key);
    assert_eq!(says("service.name").as_deref(), Some("\"edge\""));
    assert_eq!(says("service.version"), Some(format!("\"{version}\"")));
    assert_eq!(says("deployment.environment.name").as_deref(), Some("\"test\""));
    let instance = says("service.instance.id").expect("an id");
    let groups: Vec<usize> = instance.trim_matches('"').split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{instance}");
    assert_eq!(&instance[15..16], "4", "a UUID of random bits: {instance}");
}

fn request(method: Method, uri: &str) -> http::request::Parts {
    let request = Request::builder().method(method).uri(uri).header("host", "api.example.com:8443");
    request.body(()).expect("a request").into_parts().0
}

#[tokio::test]
async fn a_request_is_described_as_the_conventions_for_http_have_it() {
    let mut collector = Collector::start().await;
    let tracer = tracer(&collector.endpoint, 1.0);
    for (code, route) in [(200, Some("/scores")), (404, None), (502, Some("/scores"))] {
        let work = async {
            note_request(&request(Method::POST, "/scores/secret?key=secret"), true);
            if let Some(route) = route {
                note_route(|| route.to_owned());
            }
            note_response(HttpStatus::from_u16(code).expect("a status"), &HeaderMap::new());
        };
        tracer.trace("http request", None, work).await;
        let spans = collector.spans(1).await;
        let [span] = &spans[..] else { panic!("one span in {spans:?}") };
        let is = |key: &str, value: Option<&str>| assert_eq!(attribute(span, key).as_deref(), value, "{key}");
        assert_eq!(span.name, if route.is_some() { "POST /scores" } else { "POST" });
        assert_eq!(span.kind(), OtlpKind::Server);
        is("http.request.method", Some("\"POST\""));
        is("http.response.status_code", Some(&code.to_string()));
        is("url.scheme", Some("\"https\""));
        is("network.protocol.version", Some("\"1.1\""));
        is("server.address", Some("\"api.example.com\""));
        is("server.port", Some("8443"));
        is("http.route", route.map(|_| "\"/scores\""));
        let failed = code == 502;
        is("error.type", failed.then_some("\"502\""));
        assert_eq!(status(span), if failed { StatusCode::Error } else { StatusCode::Unset });
        assert!(!format!("{span:?}").contains("secret"), "no path leaves the process: {span:?}");
    }
}

#[tokio::test]
async fn what_a_client_makes_up_names_no_span() {
    let mut collector = Collector::start().await;
    let tracer = tracer(&collector.endpoint, 1.0);
    let odd = Method::from_bytes(b"HUNTER2").expect("a method");
    let request = Request::builder().method(odd).uri("/").header("host", "user:hunter2@h").body(());
    let parts = request.expect("a request").into_parts().0;
    tracer.trace("http request", None, async { note_request(&parts, false) }).await;
    let spans = collector.spans(1).await;
    assert_eq!(attribute(&spans[0], "http.request.method").as_deref(), Some("\"_OTHER\""));
    assert_eq!(spans[0].name, "HTTP");
    assert!(!format!("{spans:?}").to_lowercase().contains("hunter2"), "{spans:?}");
}

#[tokio::test]
async fn a_refusal_is_a_failure_of_the_client_that_asked_and_not_of_the_server() {
    let mut collector = Collector::start().await;
    let tracer = tracer(&collector.endpoint, 1.0);
    let limited = || note_response(HttpStatus::TOO_MANY_REQUESTS, &HeaderMap::new());
    let work = async {
        span("proxy", SpanKind::Client, async { limited() }).await;
        limited();
    };
    tracer.trace("request", None, work).await;
    let spans = collector.spans(2).await;
    assert_eq!(status(named(&spans, "request")), StatusCode::Unset);
    assert_eq!(status(named(&spans, "proxy")), StatusCode::Error);
    assert_eq!(attribute(named(&spans, "proxy"), "error.type").as_deref(), Some("\"429\""));
}

#[tokio::test]
async fn a_call_of_grpc_that_failed_is_a_failure_although_http_says_200() {
    let mut collector = Collector::start().await;
    let tracer = tracer(&collector.endpoint, 1.0);
    for (code, failed) in [("0", false), ("8", false), ("14", true)] {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            code.parse().expect("a value"),
        )]);
        tracer.trace("call", None, async { note_response(HttpStatus::OK, &headers) }).await;
        let spans = collector.spans(1).await;
        assert_eq!(attribute(&spans[0], "rpc.grpc.status_code").as_deref(), Some(code));
        assert_eq!(attribute(&spans[0], "rpc.system").as_deref(), Some("\"grpc\""));
        assert_eq!(status(&spans[0]) == StatusCode::Error, failed, "{code}");
    }
}

#[tokio::test]
async fn a_request_without_a_trace_begins_one_as_often_as_asked() {
    let mut collector = Collector::start().await;
    let (never, always) = (tracer(&collector.endpoint, 0.0), tracer(&collector.endpoint, 1.0));
    assert!(never.trace("http request", None, async { current() }).await.is_none());
    let unsampled = TraceContext::parse(&CALLER.replace("-01", "-00"));
    assert!(always.trace("http request", unsampled, async { current() }).await.is_none());
    let begun = always.trace("http request", None, async { current() }).await.expect("a trace");
    let spans = collector.next().await.into_spans();
    let [only] = &spans[..] else { panic!("one span in {spans:?}") };
    assert!(begun.to_string().contains(&hex(&only.trace_id)));
    assert!(only.parent_span_id.is_empty(), "{only:?}");
}

#[tokio::test]
async fn work_that_is_given_up_on_still_ends_its_span() {
    let mut collector = Collector::start().await;
    let tracer = tracer(&collector.endpoint, 1.0);
    let stuck = tracer.trace("http request", None, std::future::pending::<()>());
    assert!(tokio::time::timeout(Duration::from_millis(5), stuck).await.is_err());
    assert_eq!(collector.next().await.into_spans().len(), 1);
}

#[tokio::test]
async fn a_stop_sends_what_waits_at_once() {
    let mut collector = Collector::start().await;
    let watch = Watch::builder().without_ticker().build();
    let otlp = Otlp::new(&collector.endpoint).expect("an endpoint").gather(Duration::from_secs(3_600));
    let (tracer, exporting) = otlp.start(&watch);
    for _ in 0..700 {
        tracer.trace("http request", None, async {}).await;
    }
    exporting.finish(PATIENCE).await;
    let mut sent = 0;
    while let Some(export) = collector.try_next() {
        sent += export.into_spans().len();
    }
    assert_eq!(sent, 700);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_collector_and_counts_what_is_lost() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let endpoint = format!("http://{}", silent.local_addr().expect("it is bound"));
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let watch = Watch::builder().recorder(Arc::new(recorder)).without_ticker().build();
    let (tracer, exporting) = Otlp::new(&endpoint).expect("an endpoint").start(&watch);
    for _ in 0..700 {
        tracer.trace("http request", None, async {}).await;
    }
    exporting.finish(Duration::from_millis(50)).await;
    tracer.trace("http request", None, async {}).await;
    let shown = metrics.render();
    for line in [
        "ratelimit_trace_spans_total{result=\"lost\"} 700",
        "ratelimit_trace_spans_total{result=\"dropped\"} 1",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

#[tokio::test]
async fn outside_of_a_trace_nothing_is_made_and_work_is_done() {
    note("not.heard", || -> String { panic!("a note outside of a trace is not even written") });
    assert_eq!(span("store spend", SpanKind::Client, async { 7 }).await, 7);
    assert_eq!(current(), None);
}
