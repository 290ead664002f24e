//! Limits: decided before anything is forwarded, and told to the client in every answer.

use std::time::Duration;

use http::Method;
use spile_core::{Charges, Cost, FailurePolicy, FakeClock, Grant, InMemoryPlans, Outcome, Store, StoreError};
use spile_gateway::{Gateway, Route, Rule};
use spile_limiter::RateLimiter;
use spile_tower::key::{ClientIp, KeyResolver, MatchedRoute};

use crate::support::{Backend, by_tenant_or_address, exchange, limiter_on, plan, running, text, to};

/// A store that is never there.
struct BrokenStore;

impl Store for BrokenStore {
    async fn spend(&self, _charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn peek(&self, _charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn spend_up_to(&self, _charges: &Charges<'_>) -> Result<Grant, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn refund(&self, _charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn reset(&self, _charges: &Charges<'_>) -> Result<(), StoreError> {
        Err(StoreError::BreakerOpen)
    }
}

#[tokio::test]
async fn a_free_caller_gets_ten_of_fifteen_and_five_more_after_five_seconds() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 10, 1)]))
            .clock(clock.clone())
            .route(Route::new("/", [backend.upstream()]).unwrap())
            .rule(by_tenant_or_address("default")),
    )
    .await;
    let mut client = gateway.client().await;
    for passed in 0..10 {
        let answer = client.get("/scores", &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("10"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some((9 - passed).to_string().as_str()));
    }
    for _ in 0..5 {
        let answer = client.get("/scores", &[]).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"], "Rate limit exceeded");
    }
    assert_eq!(backend.seen().len(), 10, "what is denied never reaches the upstream");
    clock.advance(Duration::from_secs(5));
    for _ in 0..5 {
        assert_eq!(client.get("/scores", &[]).await.status, 200);
    }
    assert_eq!(client.get("/scores", &[]).await.status, 429);
}

#[tokio::test]
async fn what_costs_more_than_the_plan_ever_holds_is_forbidden_and_not_told_to_wait() {
    let backend = Backend::friendly().await;
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default(), [plan("free", 10, 1)]))
            .route(to(backend.upstream()))
            .rule(by_tenant_or_address("default").cost(Cost::new(11).unwrap())),
    )
    .await;
    let answer = gateway.client().await.get("/scores", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (403, None));
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn reads_and_writes_are_limited_apart_and_writes_cost_more() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let writes = Rule::new("writes", ClientIp::direct(), "writes")
        .path("/scores/*".parse().unwrap())
        .methods([Method::POST, Method::PUT, Method::DELETE])
        .cost(Cost::new(5).unwrap());
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 10, 1), plan("writes", 10, 1)]))
            .clock(clock.clone())
            .route(to(backend.upstream()))
            .rule(writes)
            .rule(by_tenant_or_address("default")),
    )
    .await;
    let mut client = gateway.client().await;
    for status in [200, 200, 429] {
        assert_eq!(client.ask("POST", "/scores/7", &[], "x").await.status, status);
    }
    let answer = client.get("/scores/7", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-ratelimit-remaining")), (200, Some("9")));
}

#[tokio::test]
async fn a_client_has_a_bucket_for_each_route_and_one_for_all() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let per_route = || Rule::new("per-route", ClientIp::direct().and(MatchedRoute), "route");
    let route = |path| Route::new(path, [backend.upstream()]).unwrap().limit(per_route());
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 5, 1), plan("route", 2, 1)]))
            .clock(clock.clone())
            .route(route("/a"))
            .route(route("/b"))
            .rule(by_tenant_or_address("default")),
    )
    .await;
    let mut client = gateway.client().await;
    let mut statuses = Vec::new();
    for path in ["/a", "/a", "/a", "/b", "/b", "/b"] {
        statuses.push(client.get(path, &[]).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200, 429]);
    let answer = client.get("/a", &[]).await;
    assert_eq!(answer.json()["violated-policies"], serde_json::json!(["route"]));
    assert!(
        answer.header("ratelimit").unwrap().contains("\"free\";r=1"),
        "a denial charges nothing: {answer:?}"
    );
}

#[tokio::test]
async fn a_failing_store_follows_the_rules_policy() {
    let backend = Backend::friendly().await;
    let limiter = || RateLimiter::builder().store(BrokenStore).plans([plan("free", 10, 1)]).build();
    for (policy, status, degraded) in [
        (FailurePolicy::Deny, 503, true),
        (FailurePolicy::Allow, 200, true),
        (FailurePolicy::Local, 200, true),
    ] {
        let rule = by_tenant_or_address("default").on_failure(policy);
        let gateway = running(Gateway::builder(limiter()).route(to(backend.upstream())).rule(rule)).await;
        let answer = gateway.get("/", &[]).await;
        assert_eq!(answer.status, status, "{policy}");
        assert_eq!(answer.header("x-ratelimit-degraded").is_some(), degraded, "{policy}");
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert_eq!(
                answer.json()["message"],
                "Service temporarily unavailable (rate limiter backend error)"
            );
        }
    }
}

#[tokio::test]
async fn a_rule_that_only_watches_never_refuses() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 1, 1)]))
            .route(to(backend.upstream()))
            .rule(by_tenant_or_address("default").shadow(true)),
    )
    .await;
    let mut client = gateway.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/", &[]).await.status, 200);
    }
}

#[tokio::test]
async fn what_the_upstream_reports_is_charged_and_never_shown() {
    let backend = Backend::start(|seen| {
        let mut response = text("x");
        if let Some(cost) = seen.target.strip_prefix("/cost/") {
            response.headers_mut().insert("x-ratelimit-cost", cost.parse().unwrap());
        }
        response
    })
    .await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 100, 1)]))
            .route(to(backend.upstream()).cost_from_response(true))
            .rule(by_tenant_or_address("default").cost(Cost::new(10).unwrap())),
    )
    .await;
    let mut client = gateway.client().await;
    for (path, remaining) in
        [("/cost/25", "75"), ("/cost/1", "74"), ("/other", "64"), ("/cost/-5", "54"), ("/cost/900", "0")]
    {
        let answer = client.get(path, &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining), "{path}");
        assert_eq!(answer.header("x-ratelimit-cost"), None);
        assert_eq!(answer.header("retry-after"), None);
    }
    assert_eq!(client.get("/other", &[]).await.status, 429);
}

#[tokio::test]
async fn a_bucket_that_two_rules_charge_is_settled_once() {
    let backend = Backend::start(|seen| {
        let mut response = text("x");
        response.headers_mut().insert("x-ratelimit-cost", seen.headers["x-cost"].clone());
        response
    })
    .await;
    let by_address = |id, cost| Rule::new(id, ClientIp::direct(), "free").cost(Cost::new(cost).unwrap());
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default(), [plan("free", 100, 1)]))
            .route(to(backend.upstream()).cost_from_response(true).limit(by_address("twice", 5)))
            .rule(by_address("once", 1)),
    )
    .await;
    let mut client = gateway.client().await;
    for (cost, left) in
        [("20", "80"), ("0", "80"), ("5", "75"), ("many", "70"), ("99999999999999999999", "0")]
    {
        let answer = client.get("/", &[("x-cost", cost)]).await;
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left), "{cost}");
    }
}

#[tokio::test]
async fn a_plan_that_only_its_rule_knows_is_settled_too() {
    let backend = Backend::start(|_| {
        let mut response = text("x");
        response.headers_mut().insert("x-ratelimit-cost", "20".parse().unwrap());
        response
    })
    .await;
    let rule =
        Rule::new("own", ClientIp::direct(), "own").registry(InMemoryPlans::new([plan("own", 100, 1)]));
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default(), [plan("free", 10, 1)]))
            .route(to(backend.upstream()).cost_from_response(true).limit(rule)),
    )
    .await;
    assert_eq!(gateway.get("/", &[]).await.header("x-ratelimit-remaining"), Some("80"));
}

#[tokio::test]
async fn a_denied_request_is_answered_before_its_body_is_read() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 1, 1)]))
            .route(to(backend.upstream()))
            .rule(by_tenant_or_address("default")),
    )
    .await;
    assert_eq!(gateway.get("/", &[]).await.status, 200);
    let request = b"POST / HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n";
    let answer = exchange(gateway.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
}
