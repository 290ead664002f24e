//! Requests whose limits have a concurrency: the layer holds a permit for as long as they last, and no longer.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use common::{Clocked, from_user, slow};
use http::{Request, Response};
use http_body::Body;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use spile_core::{Limit, Plan, Store};
use spile_limiter::{Permit, RateLimiter, RateLimiterBuilder, TokioClock};
use spile_memory::MemoryStore;
use spile_tower::key::{Fixed, HeaderKey};
use spile_tower::{Admission, RateLimitLayer, ReplyBody, Rule};
use tower::{Layer, Service, ServiceExt, service_fn};

mod common;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Streamed = BoxBody<Bytes, Failure>;

/// One at once; one at once and three a day; ten at once.
fn plans() -> [Plan; 3] {
    let mixed =
        [("rate", Limit::per_day(3).build().unwrap()), ("jobs", Limit::concurrent(1).build().unwrap())];
    [
        Plan::new("one", Limit::concurrent(1)).unwrap(),
        Plan::chain("mixed", mixed).unwrap(),
        Plan::new("ten", Limit::concurrent(10)).unwrap(),
    ]
}

fn store() -> Arc<Clocked> {
    Arc::new(MemoryStore::builder().clock(TokioClock::new()).build())
}

fn limiter<S: Store + 'static>(store: S) -> RateLimiterBuilder<S> {
    RateLimiter::builder().store(store).plans(plans())
}

fn layer(store: &Arc<Clocked>, plan: &'static str) -> RateLimitLayer<Arc<Clocked>> {
    let rule = Rule::new(HeaderKey::named("x-user").unwrap(), plan);
    RateLimitLayer::new(limiter(Arc::clone(store)).build(), rule).unwrap()
}

/// A body that is written by hand.
fn streamed() -> (Sender<Bytes, Failure>, Response<Streamed>) {
    let (sender, body) = Channel::new(1);
    (sender, Response::new(body.boxed()))
}

/// A service that hands out these responses.
fn answering<B: Send>(
    responses: impl IntoIterator<Item = Response<B>>,
) -> impl Service<Request<()>, Response = Response<B>, Error = Infallible, Future: Send> + Clone {
    let responses = Arc::new(Mutex::new(responses.into_iter().collect::<Vec<_>>()));
    service_fn(move |_| {
        let response = responses.lock().pop().expect("a response that is left");
        async { Ok::<_, Infallible>(response) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_the_last_byte_of_the_response() {
    let store = store();
    let (mut sender, response) = streamed();
    let service = layer(&store, "one").layer(answering([response]));
    let mut response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.headers()["ratelimit-policy"], "\"one\";q=1;qu=\"concurrent-requests\"");
    assert_eq!(response.headers()["ratelimit"], "\"one\";r=0");
    assert_eq!(store.usage().permits, 1);

    let refused = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");

    sender.send_data(Bytes::from_static(b"first")).await.unwrap();
    assert!(response.body_mut().frame().await.unwrap().unwrap().is_data());
    assert_eq!(store.usage().permits, 1, "there is more to come");
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
    assert_eq!(store.usage().permits, 0, "the body is not dropped yet, but its last byte is out");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_or_is_dropped_ends_the_permit() {
    let store = store();
    let ((sender, failing), (_open, dropped)) = (streamed(), streamed());
    let service = layer(&store, "one").layer(answering([dropped, failing]));

    let mut response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(store.usage().permits, 1);
    sender.abort("the handler failed".into());
    assert!(response.body_mut().frame().await.unwrap().is_err());
    assert_eq!(store.usage().permits, 0);

    let response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(store.usage().permits, 1);
    drop(response);
    assert_eq!(store.usage().permits, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_or_fails_ends_the_permit() {
    let store = store();
    let panics = service_fn(|_: Request<()>| async {
        tokio::task::yield_now().await;
        if true { panic!("the handler panics") } else { Ok::<_, Infallible>(Response::new(Bytes::new())) }
    });
    let called = tokio::spawn(layer(&store, "one").layer(panics).oneshot(from_user("ann")));
    assert!(called.await.unwrap_err().is_panic());
    assert_eq!(store.usage().permits, 0);

    let panics_at_once = service_fn(|_: Request<()>| {
        assert_eq!(store.usage().permits, 0, "the handler panics before there is a future");
        std::future::ready(Ok::<_, Infallible>(Response::new(Bytes::new())))
    });
    let called = layer(&store, "one").layer(panics_at_once).oneshot(from_user("ann"));
    assert!(panics_when_polled(called).await);
    assert_eq!(store.usage().permits, 0);

    let fails = service_fn(|_: Request<()>| async { Err::<Response<Bytes>, _>("no") });
    let mut called = Box::pin(layer(&store, "one").layer(fails).oneshot(from_user("ann")));
    assert!(called.as_mut().await.is_err());
    assert_eq!(store.usage().permits, 0, "although the future is still there");
}

/// True if the future panics when it is polled. It is dropped then.
async fn panics_when_polled(future: impl Future) -> bool {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(cx).is_ready());
        Poll::Ready(catch_unwind(poll).is_err())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_ends_the_permit_while_it_is_served_or_decided_about() {
    let store = store();
    let never = service_fn(|_: Request<()>| std::future::pending::<Result<Response<Bytes>, Infallible>>());
    let mut served = Box::pin(layer(&store, "one").layer(never).oneshot(from_user("ann")));
    assert!(tokio::time::timeout(Duration::from_secs(1), served.as_mut()).await.is_err());
    assert_eq!(store.usage().permits, 1);
    drop(served);
    assert_eq!(store.usage().permits, 0);

    // The store takes the permit, and its caller is gone when it answers.
    let remote = slow(Arc::clone(&store), Duration::from_millis(20));
    let rule = Rule::new(Fixed::new("all"), "one");
    let layer = RateLimitLayer::new(limiter(remote).build(), rule).unwrap();
    let deciding = layer.layer(never).oneshot(from_user("ann"));
    assert!(tokio::time::timeout(Duration::from_millis(10), deciding).await.is_err());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(store.usage().permits, 0);
    assert!(layer.layer(answering([Response::new(Bytes::new())])).oneshot(from_user("ann")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn each_of_several_layers_holds_a_permit_of_its_own() {
    let (outer, inner) = (store(), store());
    let (sender, response) = streamed();
    let service = layer(&outer, "ten").layer(layer(&inner, "one").layer(answering([response])));
    let response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!((outer.usage().permits, inner.usage().permits), (1, 1));
    let refused = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(outer.usage().permits, 2, "the outer layer holds one until the refusal is sent");
    assert!(refused.into_body().collect().await.is_ok());
    assert_eq!((outer.usage().permits, inner.usage().permits), (1, 1));
    drop(sender);
    assert!(response.into_body().collect().await.is_ok());
    assert_eq!((outer.usage().permits, inner.usage().permits), (0, 0));
}

/// Answers once with this body, and returns it as the layer hands it on.
async fn handed_on<B: ReplyBody + Send + 'static>(store: &Arc<Clocked>, body: B) -> B {
    let service = layer(store, "one").layer(answering([Response::new(body)]));
    service.oneshot(from_user("ann")).await.unwrap().into_body()
}

/// Reads a body of five bytes to its end, which is the end of its permit.
async fn read<B: Body<Data = Bytes, Error: std::fmt::Debug>>(body: B, held: impl Fn() -> usize) {
    assert_eq!((body.size_hint().exact(), held()), (Some(5), 1));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    assert_eq!(held(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_body_holds_its_permit_and_keeps_its_length() {
    let (store, words) = (store(), Bytes::from_static(b"hello"));
    let held = || store.usage().permits;

    let bytes = handed_on(&store, words.clone()).await;
    assert_eq!((&bytes[..], held()), (&b"hello"[..], 1));
    drop(bytes.slice(1..3));
    assert_eq!(held(), 1, "a piece of them is left");
    drop(bytes);
    assert_eq!(held(), 0);
    assert_eq!((handed_on(&store, Bytes::new()).await.len(), held()), (0, 0));

    let full = || Full::new(words.clone());
    read(handed_on(&store, full()).await, held).await;
    read(handed_on(&store, BoxBody::new(full())).await, held).await;
    read(handed_on(&store, UnsyncBoxBody::new(full())).await, held).await;
    read(handed_on(&store, axum::body::Body::from(words.clone())).await, held).await;
    read(handed_on(&store, tonic::body::Body::new(full())).await, held).await;

    assert_eq!(handed_on(&store, "hello".to_owned()).await, "hello");
    assert_eq!(held(), 0, "nothing can be tied to a text: the permit ends when the service has answered");
    let empty = handed_on(&store, axum::body::Body::empty()).await;
    assert_eq!((empty.is_end_stream(), held()), (true, 0), "nothing is left to send");
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_after_the_response_holds_the_permit_itself() {
    let store = store();
    let tunnel: Arc<Mutex<Option<Arc<Permit>>>> = Arc::default();
    let own = Arc::clone(&tunnel);
    let upgrades = service_fn(move |request: Request<()>| {
        let admission = request.extensions().get::<Admission>().expect("an admission").clone();
        *own.lock() = admission.permit();
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        response.extensions_mut().insert(admission);
        async { Ok::<_, Infallible>(response) }
    });
    let response = layer(&store, "one").layer(upgrades).oneshot(from_user("ann")).await.unwrap();
    assert_eq!(store.usage().permits, 1);
    assert!(tunnel.lock().take().expect("a permit").is_held());
    assert_eq!(store.usage().permits, 0);
    let admission = response.extensions().get::<Admission>().expect("an admission");
    assert!(admission.permit().is_none(), "an admission that is kept does not keep the permit");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_permit_is_charged_and_settled_like_any_other() {
    let store = store();
    let settles = service_fn(|request: Request<()>| async move {
        let admission = request.extensions().get::<Admission>().expect("an admission");
        let others = admission.charge(1).await.expect("a decision");
        let settled = admission.settle(2).await.expect("a store that answers");
        Ok::<_, Infallible>(Response::new(Bytes::from(format!("{} {}", others.allowed(), settled.uncovered))))
    });
    let service = layer(&store, "mixed").layer(settles);
    let response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], "\"mixed/rate\";r=2;t=28800, \"mixed/jobs\";r=0");
    assert_eq!(response.body(), "true 0");
    drop(response);

    let denied = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(denied.status(), 429, "the day's three are used");
    assert!(String::from_utf8_lossy(denied.body()).contains("\"violated-policies\":[\"mixed/rate\"]"));
    drop(denied);
    assert_eq!(store.usage().permits, 0, "a denial takes no permit");
}

#[tokio::test(start_paused = true)]
async fn a_layer_in_shadow_mode_takes_no_permit() {
    let store = store();
    let rule = Rule::new(Fixed::new("all"), "one");
    let layer =
        RateLimitLayer::builder(limiter(Arc::clone(&store)).build(), rule).shadow(true).build().unwrap();
    let ((_first, one), (_second, two)) = (streamed(), streamed());
    let service = layer.layer(answering([one, two]));
    let first = service.clone().oneshot(from_user("ann")).await.unwrap();
    let second = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!((first.status().as_u16(), second.status().as_u16(), store.usage().permits), (200, 200, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_that_too_many_are_at_work_in_http_and_in_grpc() {
    let store = store();
    let (_open, response) = streamed();
    let service = layer(&store, "one").layer(answering([response]));
    let _held = service.clone().oneshot(from_user("ann")).await.unwrap();

    let denied = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(denied.headers()["ratelimit"], "\"one\";r=0", "nobody knows when a request ends");
    assert_eq!(denied.headers()["x-ratelimit-limit"], "1");
    assert_eq!(denied.headers()["x-ratelimit-remaining"], "0");
    let body = denied.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let message = "Too many requests at once: the concurrency limit is 1. Please retry after 1 second.";
    assert_eq!((&body["detail"], &body["message"]), (&message.into(), &message.into()));
    assert_eq!(body["violated-policies"], serde_json::json!(["one"]));
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");

    let mut call = from_user("ann");
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let denied = service.clone().oneshot(call).await.unwrap();
    assert_eq!(denied.headers()["grpc-status"], "8");
    assert_eq!(denied.headers()["grpc-message"], message);
    assert_eq!(denied.headers()["grpc-retry-pushback-ms"], "1000");
}
