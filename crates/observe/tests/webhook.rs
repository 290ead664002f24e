//! Tests webhooks against receivers that are healthy, slow, failing or malicious.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::Value;
use spile_core::{FakeClock, Limit, Plan};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_observe::webhook::{DeliveryError, SigningSecret, Webhook, verify};
use spile_observe::{EventKind, Watch};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const SECRET: &str = "s3cret";
const SOON: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

/// The response of a receiver to the attempt of this number.
type Answers = fn(usize) -> Option<Response<Full<Bytes>>>;

/// The server that receives webhooks.
struct Receiver {
    address: SocketAddr,
    attempts: Arc<AtomicUsize>,
    deliveries: mpsc::UnboundedReceiver<(http::HeaderMap, Bytes)>,
}

impl Receiver {
    /// Answers each attempt. Without an answer, the caller waits forever.
    async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
        let address = listener.local_addr().expect("it is bound");
        let (deliver, deliveries) = mpsc::unbounded_channel();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (deliver, counted) = (deliver.clone(), Arc::clone(&counted));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (deliver, counted) = (deliver.clone(), Arc::clone(&counted));
                    async move {
                        let attempt = counted.fetch_add(1, Ordering::SeqCst);
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
                        let _heard = deliver.send((parts.headers, body.unwrap_or_default()));
                        match answers(attempt) {
                            Some(answer) => Ok::<_, Infallible>(answer),
                            None => std::future::pending().await,
                        }
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, attempts, deliveries }
    }

    fn webhook(&self) -> Webhook {
        let webhook = Webhook::new(&format!("http://{}/hook?a=b", self.address), SECRET).expect("a URL");
        webhook.allow_private(true).batch(10, SOON).retries(4, SOON)
    }

    async fn next(&mut self) -> (http::HeaderMap, Bytes) {
        let next = tokio::time::timeout(PATIENCE, self.deliveries.recv()).await;
        next.expect("a delivery in time").expect("the receiver runs")
    }
}

fn status(status: u16) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::default()).expect("a response")
}

fn watch() -> (Watch, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (Watch::builder().recorder(Arc::new(recorder)).without_ticker().build(), handle)
}

/// Waits until the metrics count this many events with `result`.
async fn counted(metrics: &PrometheusHandle, result: &str, events: u64) {
    let line = format!("ratelimit_webhook_events_total{{result=\"{result}\"}} {events}\n");
    let seen = async {
        while !metrics.render().contains(&line) {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, seen).await.is_ok(), "{line} in {}", metrics.render());
}

#[tokio::test]
async fn a_batch_arrives_signed_and_can_be_checked() {
    let mut receiver = Receiver::start(|_| Some(status(204))).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().start(&watch);
    for why in ["one", "two", "three"] {
        watch.emit(EventKind::StoreLost { why: why.to_owned() });
    }
    let (headers, body) = receiver.next().await;
    let text = |name: &str| headers[name].to_str().expect("header fields are ASCII").to_owned();
    let timestamp = text("spile-timestamp").parse().expect("seconds");
    assert!(verify(&SigningSecret::from(SECRET), timestamp, &body, &text("spile-signature")));
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["events"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&body["events"][2]["type"], &body["events"][2]["why"]),
        (&"store_lost".into(), &"three".into())
    );
    assert_eq!(text("host"), receiver.address.to_string());
    counted(&metrics, "delivered", 3).await;
}

#[tokio::test]
async fn a_receiver_that_fails_twice_gets_the_same_events_a_third_time() {
    let mut receiver = Receiver::start(|attempt| Some(status(if attempt < 2 { 500 } else { 200 }))).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().start(&watch);
    watch.config_refused("line 3");
    let (first, second, third) = (receiver.next().await.1, receiver.next().await.1, receiver.next().await.1);
    assert!(first == second && second == third);
    counted(&metrics, "delivered", 1).await;
}

#[tokio::test]
async fn a_receiver_that_never_recovers_costs_dead_letters_and_no_more_attempts() {
    let receiver = Receiver::start(|_| Some(status(503))).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().start(&watch);
    watch.config_reloaded();
    counted(&metrics, "dead", 1).await;
    assert_eq!(receiver.attempts.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_receiver_that_refuses_is_not_asked_again() {
    let receiver = Receiver::start(|_| Some(status(410))).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().start(&watch);
    watch.config_reloaded();
    counted(&metrics, "dead", 1).await;
    assert_eq!(receiver.attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    fn elsewhere() -> Response<Full<Bytes>> {
        let location = "http://169.254.169.254/latest/meta-data";
        let answer = Response::builder().status(307).header("location", location);
        answer.body(Full::default()).expect("a response")
    }
    let receiver = Receiver::start(|_| Some(elsewhere())).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().start(&watch);
    watch.config_reloaded();
    counted(&metrics, "dead", 1).await;
    assert_eq!(receiver.attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_private_target_is_refused_by_address_and_by_name() {
    let receiver = Receiver::start(|_| Some(status(200))).await;
    let port = receiver.address.port();
    let (watch, metrics) = watch();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let webhook = Webhook::new(&format!("http://{host}:{port}/"), SECRET).expect("a URL");
        let _telling = webhook.batch(1, SOON).start(&watch);
    }
    watch.config_reloaded();
    counted(&metrics, "dead", 3).await;
    assert_eq!(receiver.attempts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_receiver_that_never_answers_delays_no_decision_and_holds_a_bounded_queue() {
    let receiver = Receiver::start(|_| None).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().queue(20).batch(1, SOON).timeout(PATIENCE).start(&watch);
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let free = Plan::new("free", Limit::per_minute(1)).expect("in bounds");
    let limiter = RateLimiter::builder().store(store).plans([free]).observer(watch.clone()).build();
    for user in 0..200 {
        for _ in 0..2 {
            let _decision =
                limiter.allow(&format!("user:{user}"), ["free"], 1).await.expect("a sound question");
        }
        // Lets the task queue the event, as it would on another thread.
        tokio::task::yield_now().await;
    }
    assert_eq!(watch.snapshot().totals.all(), 400);
    // One is being delivered, twenty are queued.
    counted(&metrics, "dropped", 179).await;
}

#[tokio::test]
async fn only_the_kinds_that_were_asked_for_are_told() {
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    let (watch, _metrics) = watch();
    let _telling = receiver.webhook().only(["store_lost"]).start(&watch);
    watch.config_reloaded();
    watch.emit(EventKind::StoreLost { why: "gone".to_owned() });
    let (_, body) = receiver.next().await;
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let kinds: Vec<_> =
        body["events"].as_array().expect("events").iter().map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds, [Some("store_lost")]);
}

#[tokio::test]
async fn telling_ends_when_the_watch_is_closed_and_everything_is_sent() {
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    let (watch, _metrics) = watch();
    let telling = receiver.webhook().start(&watch);
    watch.config_reloaded();
    receiver.next().await;
    watch.close();
    let ended = tokio::time::timeout(PATIENCE, telling.finish(Duration::MAX)).await;
    assert!(ended.is_ok());
}

#[tokio::test]
async fn telling_that_is_to_finish_sends_what_waits_and_hears_of_nothing_new() {
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    let (watch, metrics) = watch();
    let telling = receiver.webhook().batch(1, SOON).start(&watch);
    watch.emit(EventKind::StoreLost { why: "first".to_owned() });
    watch.emit(EventKind::StoreLost { why: "second".to_owned() });
    assert!(receiver.next().await.1.windows(5).any(|text| text == b"first"));
    telling.finish(PATIENCE).await;
    watch.emit(EventKind::StoreLost { why: "third".to_owned() });
    counted(&metrics, "delivered", 2).await;
    assert_eq!(receiver.attempts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_happened_just_before_a_stop_is_told() {
    let receiver = Receiver::start(|_| Some(status(200))).await;
    let (watch, metrics) = watch();
    let telling = receiver.webhook().start(&watch);
    for number in 0..50 {
        watch.emit(EventKind::StoreLost { why: number.to_string() });
    }
    watch.close();
    telling.finish(PATIENCE).await;
    counted(&metrics, "delivered", 50).await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_receiver_and_counts_what_is_dropped() {
    let mut receiver = Receiver::start(|_| None).await;
    let (watch, metrics) = watch();
    let telling = receiver.webhook().batch(2, SOON).start(&watch);
    for number in 0..7 {
        watch.emit(EventKind::StoreLost { why: number.to_string() });
    }
    receiver.next().await;
    telling.finish(Duration::from_millis(50)).await;
    counted(&metrics, "dropped", 7).await;
}

#[test]
fn an_invalid_url_is_refused_at_once() {
    assert!(matches!(Webhook::new("gopher://example.com", SECRET), Err(DeliveryError::Url(_))));
}

#[tokio::test]
async fn the_loss_of_the_store_is_told_at_once_while_denials_wait_for_a_receiver_that_hangs() {
    fn denied(key: usize) -> EventKind {
        EventKind::KeyDenied {
            key: key.to_string(),
            rule: String::new(),
            limit: "free".to_owned(),
            retry_after_ms: 1,
        }
    }
    let mut receiver = Receiver::start(|attempt| (attempt > 0).then(|| status(200))).await;
    let (watch, metrics) = watch();
    let _telling = receiver.webhook().queue(5).batch(1, SOON).timeout(PATIENCE).start(&watch);
    watch.emit(denied(0));
    let (_, body) = receiver.next().await;
    assert!(String::from_utf8_lossy(&body).contains("key_denied"), "its answer never comes");
    for flood in 1..5_000 {
        watch.emit(denied(flood));
    }
    watch.emit(EventKind::StoreLost { why: "gone".to_owned() });
    for flood in 1..5_000 {
        watch.emit(denied(flood));
    }
    let (_, body) = receiver.next().await;
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["events"][0]["type"], "store_lost");
    counted(&metrics, "delivered", 1).await;
}

#[tokio::test]
async fn a_repeat_has_the_ids_of_its_first_attempt_and_no_other_event_has_them() {
    let mut receiver = Receiver::start(|attempt| Some(status(if attempt == 0 { 500 } else { 200 }))).await;
    let mut seen = std::collections::HashSet::new();
    // Two processes, or one that was restarted: each numbers its events from one.
    for again in [true, false] {
        let (watch, _metrics) = watch();
        let _telling = receiver.webhook().start(&watch);
        watch.config_reloaded();
        watch.config_refused("line 3");
        let (headers, body) = receiver.next().await;
        if again {
            let (second_headers, second_body) = receiver.next().await;
            assert_eq!(
                (&headers["spile-delivery"], &body),
                (&second_headers["spile-delivery"], &second_body)
            );
        }
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(headers["spile-delivery"], body["id"].as_str().expect("text"));
        let events = body["events"].as_array().expect("events");
        let ids = events.iter().chain([&body]).map(|event| event["id"].as_str().expect("text").to_owned());
        seen.extend(ids);
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[tokio::test]
async fn who_asked_for_a_kind_hears_how_many_of_it_were_left_out() {
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    let (watch, _metrics) = watch();
    let _telling = receiver.webhook().only(["tenant_over"]).start(&watch);
    for kind in ["key_denied", "tenant_over"] {
        watch.emit(EventKind::EventsSuppressed { kind: kind.to_owned(), count: 7 });
    }
    let (_, body) = receiver.next().await;
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let kinds: Vec<_> =
        body["events"].as_array().expect("events").iter().map(|e| e["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("tenant_over")]);
}
