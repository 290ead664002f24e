//! What the layer does to the requests and responses of a service, in paused time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::{Clocked, from_user, large, limiter, slow, small};
use http::{Request, Response, StatusCode};
use spile_core::{FailurePolicy, FakeClock, InMemoryPlans, Limit, Micros, Plan, Reason};
use spile_limiter::{Observed, Observer, RateLimiter, TokioClock};
use spile_memory::MemoryStore;
use spile_testkit::store::{FaultyStore, ModelStore};
use spile_tower::client::{ClientAddress, Networks};
use spile_tower::key::{ClientIp, Fixed, HeaderKey, KeyResolver, PathKey, Tenant, TenantKey};
use spile_tower::response::HeaderFields;
use spile_tower::{
    Admission, Cause, Keyless, PlanNames, PlansBy, RateLimitLayer, RateLimitLayerBuilder, Rule, TenantPlan,
};
use tower::{Layer, Service, ServiceExt, service_fn};

mod common;

fn by_user() -> HeaderKey {
    HeaderKey::named("x-user").unwrap()
}

fn layer(rule: Rule) -> RateLimitLayerBuilder<Clocked> {
    RateLimitLayer::builder(limiter(), rule)
}

/// A service that says `ok`, below the layer.
fn ok<S: spile_core::Store + 'static>(
    layer: &RateLimitLayer<S>,
) -> impl Service<Request<()>, Response = Response<Bytes>, Error = Infallible> + Clone + use<S> {
    layer.layer(service_fn(|_| async { Ok::<_, Infallible>(Response::new(Bytes::from_static(b"ok"))) }))
}

async fn status(
    service: &(impl Service<Request<()>, Response = Response<Bytes>, Error = Infallible> + Clone),
    request: Request<()>,
) -> StatusCode {
    service.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test(start_paused = true)]
async fn a_caller_over_the_limit_is_refused_and_let_in_again_after_the_wait() {
    let service = ok(&layer(Rule::new(by_user(), "small")).build().unwrap());
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ann")).await, 200);

    let refused = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(status(&service, from_user("ben")).await, 200, "others are not affected");

    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(status(&service, from_user("ann")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn every_response_tells_what_is_left() {
    let now = FakeClock::at(Micros::from_secs(1_765_469_720));
    let service = ok(&layer(Rule::new(by_user(), "large").cost(27)).clock(now).build().unwrap());
    let response = service.clone().oneshot(from_user("ann")).await.unwrap();
    let headers = response.headers();
    assert_eq!(headers["x-ratelimit-limit"], "100");
    assert_eq!(headers["x-ratelimit-remaining"], "73");
    assert_eq!(headers["x-ratelimit-reset"], "1765469723");
    assert_eq!(headers["ratelimit-policy"], "\"large\";q=100;w=10");
    assert_eq!(headers["ratelimit"], "\"large\";r=73;t=3");
    assert_eq!(response.body(), "ok");
}

#[tokio::test(start_paused = true)]
async fn the_cost_may_depend_on_the_request() {
    let price = |request: &http::request::Parts| if request.method == http::Method::POST { 60 } else { 1 };
    let service = ok(&layer(Rule::new(by_user(), "large").cost_by(price)).build().unwrap());
    let mut post = from_user("ann");
    *post.method_mut() = http::Method::POST;
    assert_eq!(status(&service, post.clone()).await, 200);
    assert_eq!(status(&service, post).await, 429);
    assert_eq!(status(&service, from_user("ann")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_counts_under_its_own_plan_and_others_under_the_one_for_all() {
    let service = ok(&layer(Rule::new(TenantKey.or(by_user()), TenantPlan::or("small"))).build().unwrap());
    let mut acme = from_user("ann");
    acme.extensions_mut().insert(Tenant::new("acme").on_plan("large"));
    for _ in 0..10 {
        assert_eq!(status(&service, acme.clone()).await, 200);
    }
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ann")).await, 429);
}

#[tokio::test(start_paused = true)]
async fn a_closure_may_name_the_plans_or_none() {
    let plans = PlansBy::new(|request| match request.headers.get("x-user") {
        Some(user) if user == "root" => PlanNames::none(),
        _ => PlanNames::from(["small", "large"]),
    });
    let service = ok(&layer(Rule::new(by_user(), plans)).build().unwrap());
    let response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.headers()["ratelimit-policy"], "\"small\";q=2;w=2, \"large\";q=100;w=10");
    for _ in 0..200 {
        let response = service.clone().oneshot(from_user("root")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("ratelimit"));
    }
}

#[tokio::test(start_paused = true)]
async fn rules_of_one_layer_are_charged_all_or_none() {
    let layer =
        layer(Rule::new(by_user(), "large")).and(Rule::new(Fixed::new("all"), "small")).build().unwrap();
    let service = ok(&layer);
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ben")).await, 200);
    let refused = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["ratelimit"], "\"large\";r=99, \"small\";r=0;t=1");
}

#[tokio::test(start_paused = true)]
async fn of_stacked_layers_the_caller_is_told_of_the_tighter_one() {
    let outer = RateLimitLayer::new(limiter(), Rule::new(by_user(), "large")).unwrap();
    let inner = RateLimitLayer::new(limiter(), Rule::new(PathKey, "small")).unwrap();
    let service = outer.layer(ok(&inner));
    let response = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.headers()["x-ratelimit-remaining"], "1");
    assert_eq!(response.headers().get_all("ratelimit").iter().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_only_watches_lets_everybody_pass_and_says_so_to_the_handler() {
    let layer = layer(Rule::new(by_user(), "small")).shadow(true).build().unwrap();
    let service = layer.layer(service_fn(|request: Request<()>| async move {
        let reason = request.extensions().get::<Admission>().map(|admission| admission.decision().reason());
        Ok::<_, Infallible>(Response::new(format!("{reason:?}")))
    }));
    for expected in [Reason::Ok, Reason::Ok, Reason::Shadow, Reason::Shadow] {
        let response = service.clone().oneshot(from_user("ann")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(*response.body(), format!("{:?}", Some(expected)));
    }
}

#[tokio::test(start_paused = true)]
async fn skipped_requests_are_neither_charged_nor_marked() {
    let inside = Networks::parse(["203.0.113.0/24"]).unwrap();
    let skipping = [
        layer(Rule::new(by_user(), "small")).skip_paths(["/healthz"]).build().unwrap(),
        layer(Rule::new(by_user(), "small")).skip_networks(inside, ClientAddress::direct()).build().unwrap(),
        layer(Rule::new(by_user(), "small"))
            .skip_if(|request| request.headers.contains_key("x-user"))
            .build()
            .unwrap(),
    ];
    for layer in skipping {
        let service = ok(&layer);
        for _ in 0..5 {
            let mut request = from_user("ann");
            *request.uri_mut() = "/healthz".parse().unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(!response.headers().contains_key("x-ratelimit-limit"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_that_only_begins_like_a_skipped_one_is_limited() {
    let service = ok(&layer(Rule::new(by_user(), "small")).skip_paths(["/healthz"]).build().unwrap());
    let mut request = from_user("ann");
    *request.uri_mut() = "/healthz/../login".parse().unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    assert!(response.headers().contains_key("x-ratelimit-limit"));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_is_refused_shared_or_passed_as_told() {
    let keyless = |keyless| ok(&layer(Rule::new(by_user(), "small")).keyless(keyless).build().unwrap());
    let nobody = || Request::new(());

    let refused = keyless(Keyless::Refuse).oneshot(nobody()).await.unwrap();
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");

    let shared = keyless(Keyless::Share);
    assert_eq!(status(&shared, nobody()).await, 200);
    assert_eq!(status(&shared, nobody()).await, 200);
    assert_eq!(status(&shared, nobody()).await, 429);

    let passed = keyless(Keyless::Pass);
    for _ in 0..5 {
        assert_eq!(status(&passed, nobody()).await, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_can_never_pass_is_the_callers_error_and_a_missing_plan_the_services() {
    let too_much = ok(&layer(Rule::new(by_user(), "small").cost(3)).build().unwrap());
    let response = too_much.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.status(), 400);
    assert!(!response.headers().contains_key("retry-after"));

    let unknown = ok(&layer(Rule::new(by_user(), PlansBy::new(|_| "platinum"))).build().unwrap());
    assert_eq!(status(&unknown, from_user("ann")).await, 500);

    let watching =
        ok(&layer(Rule::new(by_user(), PlansBy::new(|_| "platinum"))).shadow(true).build().unwrap());
    assert_eq!(status(&watching, from_user("ann")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_answered_by_the_closure_that_replaces_them() {
    let layer = layer(Rule::new(by_user(), "small"))
        .respond_with(|refusal| match refusal.cause() {
            Cause::Denied(_) => {
                let mut response = refusal.response();
                *response.status_mut() = StatusCode::IM_A_TEAPOT;
                response
            }
            _ => Response::new(Bytes::from_static(b"come back with a name")),
        })
        .fields(HeaderFields::default().x_ratelimit(false))
        .build()
        .unwrap();
    let service = ok(&layer);
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ann")).await, 200);
    let refused = service.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(refused.status(), 418);
    assert!(
        refused.headers().contains_key("retry-after") && !refused.headers().contains_key("x-ratelimit-limit")
    );
    let nameless = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(nameless.body(), "come back with a name");
}

fn broken(policy: FailurePolicy) -> RateLimiter<FaultyStore<ModelStore<FakeClock>>> {
    RateLimiter::builder().store(FaultyStore::down()).plans([small()]).on_failure(policy).build()
}

#[tokio::test(start_paused = true)]
async fn where_the_store_fails_the_policy_answers_and_says_so() {
    let rule = || Rule::new(by_user(), "small");
    let open = ok(&RateLimitLayer::new(broken(FailurePolicy::Allow), rule()).unwrap());
    let response = open.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["x-ratelimit-degraded"]),
        (StatusCode::OK, &"true".parse().unwrap())
    );

    let closed = ok(&RateLimitLayer::new(broken(FailurePolicy::Deny), rule()).unwrap());
    let response = closed.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");

    let alone = ok(&RateLimitLayer::new(broken(FailurePolicy::Local), rule()).unwrap());
    assert_eq!(status(&alone, from_user("ann")).await, 200);
    assert_eq!(status(&alone, from_user("ann")).await, 200);
    let response = alone.clone().oneshot(from_user("ann")).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["x-ratelimit-degraded"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_layer_may_fail_closed_where_its_limiter_fails_open() {
    let layer = RateLimitLayer::builder(broken(FailurePolicy::Allow), Rule::new(by_user(), "small"));
    assert_eq!(
        status(&ok(&layer.on_failure(FailurePolicy::Deny).build().unwrap()), from_user("ann")).await,
        503
    );
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_over_the_limit_is_refused_in_grpc() {
    let service = ok(&layer(Rule::new(by_user(), "small").cost(2)).build().unwrap());
    let call = || {
        let mut request = from_user("ann");
        request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
        request
    };
    assert_eq!(status(&service, call()).await, 200);
    let refused = service.clone().oneshot(call()).await.unwrap();
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert!(refused.body().is_empty());
}

#[tokio::test(start_paused = true)]
async fn observers_hear_the_name_of_the_layer_and_the_tenant() {
    struct Heard(Arc<AtomicUsize>);
    impl Observer for Heard {
        fn decided(&self, observed: &Observed<'_>) {
            assert_eq!(observed.rule(), Some("api"));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let heard = Arc::new(AtomicUsize::new(0));
    let limiter = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([small()])
        .observer(Heard(Arc::clone(&heard)))
        .build();
    let service =
        ok(&RateLimitLayer::builder(limiter, Rule::new(by_user(), "small")).name("api").build().unwrap());
    for _ in 0..3 {
        let mut request = from_user("ann");
        request.extensions_mut().insert(Tenant::new("acme"));
        status(&service, request).await;
    }
    assert_eq!(heard.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_plan_holds_from_the_next_request_on_and_tokens_carry_over() {
    let plans = Arc::new(InMemoryPlans::new([large()]));
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let limiter = RateLimiter::builder().store(store).registry(Arc::clone(&plans)).build();
    let service = ok(&RateLimitLayer::new(limiter, Rule::new(by_user(), "large")).unwrap());
    let left = async || {
        let response = service.clone().oneshot(from_user("ann")).await.unwrap();
        response.headers()["x-ratelimit-remaining"].to_str().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(left().await, 99);

    plans.put(&Plan::new("large", Limit::per_second(1).burst(5)).unwrap());
    assert_eq!(left().await, 4, "clamped to the smaller capacity");

    plans.put(&Plan::new("large", Limit::per_second(1).burst(1_000)).unwrap());
    assert_eq!(left().await, 3, "a larger capacity is filled by the refill only");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(left().await, 12);
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let store = slow(MemoryStore::builder().clock(TokioClock::new()).build(), Duration::from_millis(5));
    let slow = RateLimiter::builder().store(store).plans([small()]).build();
    let rule = || Rule::new(by_user(), "small");
    calls_in_a_row(RateLimitLayer::new(limiter(), rule()).unwrap().layer(Strict { ready: false })).await;
    calls_in_a_row(RateLimitLayer::new(slow, rule()).unwrap().layer(Strict { ready: false })).await;
}

async fn calls_in_a_row(
    mut service: impl Service<Request<()>, Response = Response<Bytes>, Error = Infallible>,
) {
    for _ in 0..2 {
        let response = service.ready().await.unwrap().call(from_user("ann")).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

/// Must be polled ready before each call, and forgets it when cloned.
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        self.ready = true;
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        std::future::ready(Ok(Response::new(Bytes::new())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_holds_the_caller_back() {
    let layer = RateLimitLayer::new(limiter(), Rule::new(by_user(), "small")).unwrap();
    let (mut service, mut handle) =
        tower_test::mock::spawn_with(|mock: tower_test::mock::Mock<Request<()>, Response<Bytes>>| {
            layer.layer(mock)
        });
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(service.poll_ready().is_ready());

    let mut response = tokio_test::task::spawn(service.call(from_user("ann")));
    assert!(response.poll().is_pending());
    let (request, send) = handle.next_request().await.unwrap();
    assert!(request.extensions().get::<Admission>().is_some_and(|admission| admission.decision().allowed()));
    send.send_response(Response::new(Bytes::from_static(b"late")));
    assert_eq!(response.await.unwrap().body(), "late");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_never_reaches_the_service() {
    let layer = RateLimitLayer::new(limiter(), Rule::new(by_user(), "small").cost(2)).unwrap();
    let (mut service, mut handle) =
        tower_test::mock::spawn_with(|mock: tower_test::mock::Mock<Request<()>, Response<Bytes>>| {
            layer.layer(mock)
        });
    handle.allow(2);
    assert!(service.poll_ready().is_ready());
    let first = service.call(from_user("ann"));
    handle.next_request().await.unwrap().1.send_response(Response::new(Bytes::new()));
    assert_eq!(first.await.unwrap().status(), 200);
    assert!(service.poll_ready().is_ready());
    assert_eq!(service.call(from_user("ann")).await.unwrap().status(), 429);
    let mut next = tokio_test::task::spawn(handle.next_request());
    assert!(next.poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_service_is_passed_on() {
    let layer = RateLimitLayer::new(limiter(), Rule::new(by_user(), "small")).unwrap();
    let failing = service_fn(|_: Request<()>| async { Err::<Response<Bytes>, _>("down") });
    assert_eq!(layer.layer(failing).oneshot(from_user("ann")).await.unwrap_err(), "down");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_while_the_store_decides_takes_nothing_down() {
    let store = slow(MemoryStore::builder().clock(TokioClock::new()).build(), Duration::from_millis(5));
    let limiter = RateLimiter::builder().store(store).plans([small()]).build();
    let service = ok(&RateLimitLayer::new(limiter, Rule::new(by_user(), "small")).unwrap());
    let mut hung_up = tokio_test::task::spawn(service.clone().oneshot(from_user("ann")));
    assert!(hung_up.poll().is_pending());
    drop(hung_up);
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ann")).await, 429);
}

#[tokio::test(start_paused = true)]
async fn the_address_is_a_key_like_any_other() {
    let service = ok(&layer(Rule::new(ClientIp::direct(), "small")).build().unwrap());
    assert_eq!(status(&service, from_user("ann")).await, 200);
    assert_eq!(status(&service, from_user("ben")).await, 200);
    assert_eq!(status(&service, from_user("cid")).await, 429);
}

#[test]
fn a_plan_that_does_not_exist_is_noticed_when_the_layer_is_built() {
    let misspelt = [
        layer(Rule::new(by_user(), "smal")).build(),
        layer(Rule::new(by_user(), ["small", "smal"])).build(),
        layer(Rule::tenant_or_address("smal")).build(),
        layer(Rule::new(by_user(), "small")).and(Rule::new(PathKey, String::from("smal"))).build(),
    ];
    for layer in misspelt {
        let unknown = layer.unwrap_err();
        assert_eq!(unknown.to_string(), "no plan is called `smal`; there are `large`, `small`");
        assert_eq!((unknown.plan(), unknown.known().len()), ("smal", 2));
    }
}
