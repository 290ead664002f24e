//! Traces as an operator sets them up: in the file, with a collector in this process.

use serde_json::Value;

use crate::support::{Client, Spile, receiver};

fn spans(document: &Value) -> Vec<Value> {
    document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_a_decision_and_a_store_call_are_one_trace() {
    let (endpoint, mut collected) = receiver("").await;
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let observe = format!("[observe]\notlp = \"{endpoint}\"\n");
    let _spile = Spile::start_in(folder.path(), &observe).await.keep_busy();
    let (_, body) = collected.recv().await.expect("the collector runs");
    let spans = spans(&serde_json::from_slice(&body).expect("OTLP in JSON"));
    let named = |name: &str| spans.iter().find(|span| span["name"] == name).expect("a span of that name");
    let (store, decision, request) = (named("store spend"), named("decision"), named("http request"));
    assert_eq!(store["parentSpanId"], decision["spanId"]);
    assert_eq!(decision["parentSpanId"], request["spanId"]);
    assert_eq!(store["traceId"], request["traceId"]);
    assert_eq!(request["attributes"][0]["key"], "http.response.status_code");
    assert!(!String::from_utf8_lossy(&body).contains("203.0.113"), "a key left the house");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_span_has_arrived_when_the_server_has_stopped() {
    let (endpoint, mut collected) = receiver("").await;
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let spile = Spile::start_in(folder.path(), &format!("[observe]\notlp = \"{endpoint}\"\n")).await;
    let (client, url) = (Client::new(), format!("http://{}/v1/check", spile.http));
    for request in 0..700 {
        let question = serde_json::json!({"ruleId": "default", "identity": request.to_string()});
        client.post(&url, &question).await.expect("it answers");
    }
    spile.stop().await;
    let mut requests = 0;
    while let Ok((_, body)) = collected.try_recv() {
        let spans = spans(&serde_json::from_slice(&body).expect("OTLP in JSON"));
        requests += spans.iter().filter(|span| span["name"] == "http request").count();
    }
    assert_eq!(requests, 700);
}
