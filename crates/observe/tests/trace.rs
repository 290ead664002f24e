//! Tests traces against an OTLP collector in this process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::Value;
use spile_observe::Watch;
use spile_observe::trace::{Otlp, TraceContext, Tracer, current, note, span};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PATIENCE: Duration = Duration::from_secs(20);

/// A collector that keeps the spans that it receives.
async fn collector() -> (String, mpsc::UnboundedReceiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (keep, kept) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let keep = keep.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let keep = keep.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await?.to_bytes();
                    let _kept = keep.send((path, serde_json::from_slice(&body).expect("OTLP in JSON")));
                    Ok::<_, hyper::Error>(http::Response::new(Full::<Bytes>::from("{}")))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (endpoint, kept)
}

fn tracer(endpoint: &str, ratio: f64) -> Tracer {
    let watch = Watch::builder().without_ticker().build();
    let otlp = Otlp::new(endpoint).expect("an endpoint").ratio(ratio).gather(Duration::from_millis(20));
    otlp.start(&watch).0
}

async fn next(kept: &mut mpsc::UnboundedReceiver<(String, Value)>) -> (String, Value) {
    let next = tokio::time::timeout(PATIENCE, kept.recv()).await;
    next.expect("spans in time").expect("the collector runs")
}

fn spans(document: &Value) -> Vec<Value> {
    document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn spans_belong_to_the_callers_trace_and_to_each_other() {
    let (endpoint, mut kept) = collector().await;
    let tracer = tracer(&endpoint, 0.0);
    let passed_on = tracer
        .trace("http request", TraceContext::parse(CALLER), async {
            note("http.response.status_code", || "200".to_owned());
            span("store spend", async { current() }).await
        })
        .await;
    let (path, document) = next(&mut kept).await;
    assert_eq!(path, "/v1/traces");
    let service = &document["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(
        (&service["key"], &service["value"]["stringValue"]),
        (&"service.name".into(), &"spile".into())
    );
    let [store, request] = &spans(&document)[..] else { panic!("two spans in {document}") };
    assert_eq!((&store["name"], &request["name"]), (&"store spend".into(), &"http request".into()));
    for span in [store, request] {
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    }
    assert_eq!(request["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(store["parentSpanId"], request["spanId"]);
    assert_eq!(request["attributes"][0]["value"]["stringValue"], "200");
    let passed_on = passed_on.expect("the task is in a trace").to_string();
    assert!(passed_on.contains(store["spanId"].as_str().expect("an id")), "{passed_on}");
}

#[tokio::test]
async fn a_request_without_a_trace_begins_one_as_often_as_asked() {
    let (endpoint, mut kept) = collector().await;
    let (never, always) = (tracer(&endpoint, 0.0), tracer(&endpoint, 1.0));
    assert!(never.trace("http request", None, async { current() }).await.is_none());
    let unsampled = TraceContext::parse(&CALLER.replace("-01", "-00"));
    assert!(always.trace("http request", unsampled, async { current() }).await.is_none());
    let begun = always.trace("http request", None, async { current() }).await.expect("a trace");
    let (_, document) = next(&mut kept).await;
    let [only] = &spans(&document)[..] else { panic!("one span in {document}") };
    assert!(begun.to_string().contains(only["traceId"].as_str().expect("an id")));
    assert_eq!(only.get("parentSpanId"), None);
}

#[tokio::test]
async fn work_that_is_given_up_on_still_ends_its_span() {
    let (endpoint, mut kept) = collector().await;
    let tracer = tracer(&endpoint, 1.0);
    let stuck = tracer.trace("http request", None, std::future::pending::<()>());
    assert!(tokio::time::timeout(Duration::from_millis(5), stuck).await.is_err());
    assert_eq!(spans(&next(&mut kept).await.1).len(), 1);
}

#[tokio::test]
async fn a_stop_sends_what_waits_at_once() {
    let (endpoint, mut kept) = collector().await;
    let watch = Watch::builder().without_ticker().build();
    let otlp = Otlp::new(&endpoint).expect("an endpoint").gather(Duration::from_secs(3_600));
    let (tracer, exporting) = otlp.start(&watch);
    for _ in 0..700 {
        tracer.trace("http request", None, async {}).await;
    }
    exporting.finish(PATIENCE).await;
    let mut sent = 0;
    while let Ok((_, document)) = kept.try_recv() {
        sent += spans(&document).len();
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
    note("nobody.hears", || panic!("a note that nobody asked for is not even written"));
    assert_eq!(span("store spend", async { 7 }).await, 7);
    assert_eq!(current(), None);
}
