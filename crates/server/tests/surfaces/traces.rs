//! Traces as an operator sets them up: in the file, with a collector in this process.

use spile_testkit::otlp::{Collector, SpanKind, StatusCode, attribute, named, status};
use spile_testkit::redis::RedisServer;

use crate::support::{Client, Spile};

/// A Spile that sends its traces to the collector, with this added to `[observe]`.
async fn traced(collector: &Collector, more: &str) -> Spile {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let observe = format!("[observe]\notlp = \"{}\"\n{more}\n", collector.endpoint);
    Spile::start_in(folder.path(), &observe).await
}

async fn ask(spile: &Spile, identity: &str) {
    let question = serde_json::json!({"ruleId": "default", "identity": identity});
    Client::new().post(&format!("http://{}/v1/check", spile.http), &question).await.expect("it answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_a_decision_and_a_store_call_are_one_trace() {
    let mut collector = Collector::start().await;
    let spile = traced(&collector, "").await;
    ask(&spile, "203.0.113.7").await;
    let export = collector.next().await;
    assert!(!export.text.contains("203.0.113"), "a key left the house");
    let spans = export.into_spans();
    let (store, decision) = (named(&spans, "store spend"), named(&spans, "decision"));
    let request = named(&spans, "POST /v1/check");
    assert_eq!(store.parent_span_id, decision.span_id);
    assert_eq!(decision.parent_span_id, request.span_id);
    assert_eq!(store.trace_id, request.trace_id);
    assert_eq!(request.kind(), SpanKind::Server);
    assert_eq!(store.kind(), SpanKind::Internal, "the embedded store is in this process");
    assert_eq!(attribute(request, "http.response.status_code").as_deref(), Some("200"));
    assert_eq!(attribute(request, "http.route").as_deref(), Some("\"/v1/check\""));
    assert_eq!(attribute(request, "server.address").as_deref(), Some("\"127.0.0.1\""));
    assert_eq!(attribute(request, "server.port"), Some(spile.http.port().to_string()));
    assert_eq!(attribute(decision, "spile.reason").as_deref(), Some("\"ok\""));
    assert!(spans.iter().all(|span| status(span) == StatusCode::Unset));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_headers_and_the_attributes_of_the_file() {
    let mut collector = Collector::start().await;
    let more = "otlp_headers = { Authorization = \"Bearer hunter2\" }\n\
                otlp_attributes = { \"service.name\" = \"edge\", \"deployment.environment.name\" = \"test\" }";
    let spile = traced(&collector, more).await;
    ask(&spile, "a").await;
    let export = collector.next().await;
    assert_eq!(export.headers["authorization"], "Bearer hunter2");
    assert_eq!(export.resource("service.name").as_deref(), Some("\"edge\""));
    assert_eq!(export.resource("deployment.environment.name").as_deref(), Some("\"test\""));
    assert_eq!(export.resource("service.version"), Some(format!("{:?}", env!("CARGO_PKG_VERSION"))));
    for key in ["service.instance.id", "host.name"] {
        assert!(export.resource(key).is_some_and(|value| value.len() > 2), "{key}");
    }
    assert_eq!(export.scope(), Some(("spile", env!("CARGO_PKG_VERSION"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_redis_is_the_span_of_a_client_and_says_why_it_failed() {
    let mut collector = Collector::start().await;
    let redis = RedisServer::start();
    let store = format!("[store]\nurl = \"{}\"\ntimeout = \"500ms\"\non_failure = \"deny\"", redis.url());
    let spile = traced(&collector, &store).await;
    ask(&spile, "a").await;
    let spans = collector.spans(3).await;
    let call = named(&spans, "store spend");
    assert_eq!((call.kind(), status(call)), (SpanKind::Client, StatusCode::Unset));
    assert_eq!(attribute(call, "db.system.name").as_deref(), Some("\"redis\""));
    drop(redis);
    ask(&spile, "a").await;
    let spans = collector.spans(3).await;
    let call = named(&spans, "store spend");
    assert_eq!(status(call), StatusCode::Error);
    assert!(attribute(call, "error.type").is_some(), "{call:?}");
    let request = named(&spans, "POST /v1/check");
    assert_eq!(attribute(request, "http.response.status_code").as_deref(), Some("503"));
    assert_eq!(
        (status(request), attribute(request, "error.type").as_deref()),
        (StatusCode::Error, Some("\"503\""))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_span_has_arrived_when_the_server_has_stopped() {
    let mut collector = Collector::start().await;
    let spile = traced(&collector, "").await;
    for request in 0..700 {
        ask(&spile, &request.to_string()).await;
    }
    spile.stop().await;
    let mut requests = 0;
    while let Some(export) = collector.try_next() {
        requests += export.into_spans().iter().filter(|span| span.name == "POST /v1/check").count();
    }
    assert_eq!(requests, 700);
}
