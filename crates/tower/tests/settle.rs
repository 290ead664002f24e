//! Settling up after the work is done.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{Clocked, from_user, large, limiter, slow, small};
use http::{Request, Response};
use http_body_util::{BodyExt, Channel, Full};
use parking_lot::Mutex;
use spile_core::{Amount, FailurePolicy, Store};
use spile_limiter::{RateLimiter, TokioClock};
use spile_memory::MemoryStore;
use spile_testkit::store::FaultyStore;
use spile_tower::cost::CostSource;
use spile_tower::key::{Fixed, HeaderKey, ResolvedKey};
use spile_tower::{Admission, RateLimitLayer, Rule};
use tower::layer::util::Stack;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

mod common;

/// The key of `x-user: ann`, which is hashed.
fn ann() -> String {
    ResolvedKey::header("x-user", b"ann").as_str().to_owned()
}

type Handler = BoxCloneService<Request<()>, Response<Bytes>, Infallible>;

/// Sends one request of Ann's through the layer, and takes out what the handler would find to settle with.
async fn admitted<L>(layer: L) -> Admission
where
    L: Layer<Handler, Service: Service<Request<()>, Response = Response<Bytes>, Error = Infallible>>,
{
    let found = Arc::new(Mutex::new(None));
    let handler = {
        let found = Arc::clone(&found);
        Handler::new(service_fn(move |request: Request<()>| {
            *found.lock() = request.extensions().get::<Admission>().cloned();
            async { Ok::<_, Infallible>(Response::new(Bytes::new())) }
        }))
    };
    let response = layer.layer(handler).oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.status(), 200);
    found.lock().take().expect("the layer leaves a handle in the request's extensions")
}

fn by_user(cost: u64) -> Rule {
    Rule::new(HeaderKey::named("x-user").unwrap(), "large").cost(cost)
}

async fn left<S: Store>(limiter: &RateLimiter<S>, key: &str) -> Amount {
    limiter.peek(key, ["large"], 0).await.unwrap().remaining()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cost_more_is_charged_the_rest() {
    let limiter = limiter();
    let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(10)).unwrap()).await;
    assert_eq!(admission.settle(45).await.unwrap().uncovered, 0);
    assert_eq!(left(&limiter, &ann()).await, 55);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cost_less_is_given_the_rest_back() {
    let limiter = limiter();
    let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(50)).unwrap()).await;
    assert_eq!(admission.settle(20).await.unwrap().uncovered, 0);
    assert_eq!(left(&limiter, &ann()).await, 80);
}

#[tokio::test(start_paused = true)]
async fn what_the_bucket_does_not_have_is_owed_and_what_is_beyond_its_debt_is_told() {
    let limiter = limiter();
    let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(10)).unwrap()).await;
    assert_eq!(admission.settle(5_000).await.unwrap().uncovered, 4_800);
    let owing = limiter.peek(&ann(), ["large"], 0).await.unwrap();
    assert_eq!((owing.allowed(), owing.binding().owed()), (false, Amount::from(100)));
}

#[tokio::test(start_paused = true)]
async fn charging_more_is_a_decision_of_its_own() {
    let limiter = limiter();
    let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(10)).unwrap()).await;
    assert!(admission.charge(80).await.unwrap().allowed());
    assert!(!admission.charge(80).await.unwrap().allowed());
    assert!(admission.charge(101).await.is_err(), "it could never pass");
    assert_eq!(left(&limiter, &ann()).await, 10);
}

#[tokio::test(start_paused = true)]
async fn every_rule_of_the_layer_is_settled() {
    let limiter = limiter();
    let layer = RateLimitLayer::builder(limiter.clone(), by_user(10))
        .and(Rule::new(Fixed::new("all"), "large").cost(1))
        .build()
        .unwrap();
    let admission = admitted(layer).await;
    admission.settle(5).await.unwrap();
    assert_eq!(left(&limiter, &ann()).await, 95);
    assert_eq!(left(&limiter, "static:all").await, 95);

    admission.refund(5).await.unwrap();
    assert_eq!(left(&limiter, &ann()).await, 100);
    assert_eq!(left(&limiter, "static:all").await, 100);
}

#[tokio::test(start_paused = true)]
async fn what_a_watching_layer_never_took_is_not_given_back() {
    let limiter = limiter();
    assert!(limiter.allow(&ann(), ["large"], 95).await.unwrap().allowed());
    let admission =
        admitted(RateLimitLayer::builder(limiter.clone(), by_user(10)).shadow(true).build().unwrap()).await;
    admission.settle(0).await.unwrap();
    admission.refund(10).await.unwrap();
    assert_eq!(left(&limiter, &ann()).await, 5);
}

#[tokio::test(start_paused = true)]
async fn where_the_store_is_down_nothing_is_refunded_and_nothing_breaks() {
    let limiter = RateLimiter::builder()
        .store(FaultyStore::down())
        .plans([small()])
        .on_failure(FailurePolicy::Allow)
        .build();
    let rule = Rule::new(HeaderKey::named("x-user").unwrap(), "small");
    let admission = admitted(RateLimitLayer::new(limiter, rule).unwrap()).await;
    assert!(admission.refund(1).await.is_ok());
    assert!(admission.settle(0).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_settled_once_however_often_and_by_whichever_clone() {
    let limiter = limiter();
    let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(50)).unwrap()).await;
    let clone = admission.clone();
    let settled = admission.settle(20).await.unwrap();
    assert!(!settled.already);
    for again in [&admission, &clone, &clone.clone()] {
        for tokens in [0, 20, 70] {
            let settled = again.settle(tokens).await.unwrap();
            assert!(settled.already && settled.uncovered == 0);
        }
    }
    assert_eq!(left(&limiter, &ann()).await, 80);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_settling_was_given_up_is_not_settled_again() {
    let pause = Duration::from_millis(10);
    let store = slow(MemoryStore::builder().clock(TokioClock::new()).build(), pause);
    let limiter = RateLimiter::builder().store(store).plans([large()]).build();
    let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(50)).unwrap()).await;
    assert!(tokio::time::timeout(pause / 2, admission.settle(20)).await.is_err());
    assert!(admission.settle(20).await.unwrap().already, "the store may have given back already");
    assert_eq!(left(&limiter, &ann()).await, 50);
}

/// An outer layer that charges everybody's bucket ten, and an inner one that charges Ann's fifty.
fn two_layers(
    everybody: &RateLimiter<Clocked>,
    users: &RateLimiter<Clocked>,
) -> Stack<RateLimitLayer<Clocked>, RateLimitLayer<Clocked>> {
    let all = Rule::new(Fixed::new("all"), "large").cost(10);
    let (outer, inner) = (
        RateLimitLayer::new(everybody.clone(), all).unwrap(),
        RateLimitLayer::new(users.clone(), by_user(50)).unwrap(),
    );
    Stack::new(inner, outer)
}

#[tokio::test(start_paused = true)]
async fn settling_what_a_handler_finds_settles_every_layer_by_its_own_chain() {
    let (everybody, users) = (limiter(), limiter());
    let admission = admitted(two_layers(&everybody, &users)).await;
    assert!(!admission.settle(20).await.unwrap().already);
    assert_eq!([left(&everybody, "static:all").await, left(&users, &ann()).await], [80, 80]);
    assert!(admission.settle(30).await.unwrap().already);
    assert_eq!([left(&everybody, "static:all").await, left(&users, &ann()).await], [80, 80]);
}

#[tokio::test(start_paused = true)]
async fn each_layer_can_be_reached_and_settled_by_itself() {
    let (everybody, users) = (limiter(), limiter());
    let admission = admitted(two_layers(&everybody, &users)).await;
    let outer = admission.outer().expect("two layers let the request in");
    assert!(outer.outer().is_none());
    assert_eq!([admission.decision().remaining(), outer.decision().remaining()], [50, 90]);
    outer.settle(5).await.unwrap();
    assert_eq!([left(&everybody, "static:all").await, left(&users, &ann()).await], [95, 50]);
    assert!(!admission.settle(20).await.unwrap().already, "the inner layer was not settled yet");
    assert_eq!([left(&everybody, "static:all").await, left(&users, &ann()).await], [95, 80]);
}

#[tokio::test(start_paused = true)]
async fn what_any_layer_could_not_cover_is_told() {
    let (everybody, users) = (limiter(), limiter());
    let admission = admitted(two_layers(&everybody, &users)).await;
    assert!(users.allow(&ann(), ["large"], 50).await.unwrap().allowed());
    assert_eq!(admission.settle(160).await.unwrap().uncovered, 10);
    let all = everybody.peek("static:all", ["large"], 0).await.unwrap();
    assert_eq!(all.binding().owed(), 60);
}

/// A response with this header and body.
fn answer<B>(fields: &[(&'static str, &'static str)], body: B) -> Response<B> {
    let mut response = Response::new(body);
    for (name, value) in fields {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

#[tokio::test(start_paused = true)]
async fn a_request_is_settled_at_what_its_answer_says_when_the_answer_has_passed() {
    let usage = r#"{"text":"hello","usage":{"total_tokens":45}}"#;
    for (source, fields, body, left_over) in [
        ("openai", &[][..], usage, 55),
        ("json:/usage/total_tokens", &[], usage, 55),
        ("header:x-cost", &[("x-cost", "7")], usage, 93),
        ("openai", &[], "{}", 90),
        ("openai", &[("content-encoding", "gzip")], usage, 90),
    ] {
        let (limiter, source) = (limiter(), source.parse::<CostSource>().unwrap());
        let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(10)).unwrap()).await;
        let response = admission.settle_from(&source, answer(fields, Full::from(body))).await;
        let passed = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            (&passed[..], left(&limiter, &ann()).await),
            (body.as_bytes(), Amount::from(left_over)),
            "{source}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn events_pass_one_by_one_and_an_answer_that_is_dropped_gives_nothing_back() {
    for (tokens, is_dropped, left_over) in [(45, false, 55), (3, false, 97), (45, true, 55), (3, true, 90)] {
        let limiter = limiter();
        let admission = admitted(RateLimitLayer::new(limiter.clone(), by_user(10)).unwrap()).await;
        let (mut upstream, body) = Channel::<Bytes>::new(1);
        let events = answer(&[("content-type", "text/event-stream")], body);
        let mut body = admission.settle_from(&CostSource::OpenAi, events).await.into_body();
        for data in ["{}".to_owned(), format!("{{\"usage\":{{\"total_tokens\":{tokens}}}}}")] {
            let event = Bytes::from(format!("data: {data}\n\n"));
            upstream.send_data(event.clone()).await.unwrap();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event);
        }
        assert_eq!(left(&limiter, &ann()).await, 90, "settled when the answer has ended");
        if is_dropped {
            drop(body);
        } else {
            drop(upstream);
            assert!(body.frame().await.is_none());
        }
        assert_eq!(left(&limiter, &ann()).await, left_over);
        assert!(admission.settle(0).await.unwrap().already || left_over == 90, "once");
    }
}
