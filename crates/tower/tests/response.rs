//! What a decision looks like over HTTP.

use std::time::Duration;

use http::HeaderMap;
use spile_calendar::CalendarLimit;
use spile_core::{Decision, FailurePolicy, FakeClock, Limit, Micros, Plan};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_testkit::store::FaultyStore;
use spile_tower::response::{self, HeaderFields, Reset};

mod common;

/// 2025-12-11T16:15:20Z.
const NOW: Micros = Micros::from_secs(1_765_469_720);

fn limiter(plans: impl IntoIterator<Item = Plan>) -> RateLimiter<MemoryStore<FakeClock>> {
    let store = MemoryStore::builder().clock(FakeClock::at(NOW)).build();
    RateLimiter::builder().store(store).plans(plans).build()
}

fn free() -> Plan {
    Plan::new("free", Limit::per_second(20).burst(100)).unwrap()
}

fn gold() -> Plan {
    Plan::chain("gold", [("burst", Limit::per_second(50).burst(100)), ("daily", Limit::per_day(10_000))])
        .unwrap()
}

async fn spent(plan: Plan, costs: &[u64]) -> Decision {
    let name = plan.name().to_string();
    let limiter = limiter([plan]);
    let mut last = None;
    for cost in costs {
        last = Some(limiter.allow("k", [&name], *cost).await.unwrap());
    }
    last.unwrap()
}

/// What a caller is told who holds the only permit, and what the next caller is told.
async fn acquired() -> (Decision, Decision) {
    let burst = Limit::per_second(20).burst(100).build().unwrap();
    let jobs = Plan::chain("gold", [("burst", burst), ("jobs", Limit::concurrent(1).build().unwrap())]);
    let limiter = limiter([jobs.unwrap()]);
    let held = limiter.acquire("k", "gold").await.unwrap();
    let denied = limiter.acquire("k", "gold").await.unwrap_err();
    (held.decision().clone(), denied.decision().unwrap().clone())
}

fn fields(decision: &Decision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    response::write_fields(decision, NOW, &mut headers);
    headers
}

#[tokio::test]
async fn a_concurrency_has_a_unit_and_no_window_and_may_be_asked_again_after_a_second() {
    let (allowed, denied) = acquired().await;
    let headers = fields(&allowed);
    let policies = "\"gold/burst\";q=100;w=5, \"gold/jobs\";q=1;qu=\"concurrent-requests\"";
    assert_eq!(headers["ratelimit-policy"], policies);
    assert_eq!(headers["ratelimit"], "\"gold/burst\";r=99;t=1, \"gold/jobs\";r=0");
    assert_eq!(headers["x-ratelimit-limit"], "1");
    assert_eq!(headers["x-ratelimit-remaining"], "0");

    let headers = fields(&denied);
    assert_eq!(headers["ratelimit"], "\"gold/burst\";r=99, \"gold/jobs\";r=0");
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(headers["x-ratelimit-reset"], "1765469721");
    let body = response::body(&denied, NOW);
    assert!(body.contains(
        "\"detail\":\"Too many requests at once: the concurrency limit is 1. Please retry after 1 second.\""
    ));
    assert!(body.contains("\"violated-policies\":[\"gold/jobs\"]"));
}

#[tokio::test]
async fn an_allowed_response_says_what_is_left_and_when_it_is_full() {
    let headers = fields(&spent(free(), &[27]).await);
    assert_eq!(headers["x-ratelimit-limit"], "100");
    assert_eq!(headers["x-ratelimit-remaining"], "73");
    assert_eq!(headers["x-ratelimit-reset"], "1765469722");
    assert_eq!(headers["ratelimit-policy"], "\"free\";q=100;w=5");
    assert_eq!(headers["ratelimit"], "\"free\";r=73;t=2");
    assert!(!headers.contains_key("retry-after") && !headers.contains_key("cache-control"));
    assert!(!headers.contains_key("x-ratelimit-degraded"));
}

#[tokio::test]
async fn a_denial_is_a_problem_and_plain_words_at_once() {
    let denied = spent(free(), &[100, 100]).await;
    let answer = response::refusal(&denied, NOW);
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    assert_eq!(answer.headers()["retry-after"], "5");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    assert_eq!(answer.headers()["ratelimit"], "\"free\";r=0;t=5");
    assert_eq!(
        std::str::from_utf8(answer.body()).unwrap(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429,"detail":"Too many requests. Please retry after 5 seconds.","violated-policies":["free"],"error":"Rate limit exceeded","message":"Too many requests. Please retry after 5 seconds.","limit":100,"remaining":0,"resetAt":"2025-12-11T16:15:25.000Z"}"#
    );
}

#[tokio::test]
async fn a_quota_is_told_with_its_window_and_the_moment_at_which_that_ends() {
    let month = || Limit::quota(100).per_month().zone("Europe/Berlin").unwrap();
    let plan = Plan::chain("gold", [("month", month().build().unwrap())]).unwrap();
    let headers = fields(&spent(plan.clone(), &[27]).await);
    assert_eq!(headers["x-ratelimit-remaining"], "73");
    // Until 2026-01-01T00:00:00+01:00.
    assert_eq!(headers["x-ratelimit-reset"], "1767222000");
    assert_eq!(headers["ratelimit-policy"], "\"gold/month\";q=100;w=2678400");
    assert_eq!(headers["ratelimit"], "\"gold/month\";r=73;t=1752280");
    let denied = spent(plan.clone(), &[100, 1]).await;
    let later = NOW + Duration::from_millis(700);
    let answer = response::refusal(&denied, later);
    assert_eq!(answer.headers()["retry-after"], "1752280");
    assert_eq!(answer.headers()["x-ratelimit-reset"], "1767222000", "however late the answer is");
    let body = std::str::from_utf8(answer.body()).unwrap();
    assert!(body.contains(r#""resetAt":"2025-12-31T23:00:00.000Z""#), "{body}");
    let unused = spent(plan, &[0]).await;
    assert_eq!(response::reset_at(&unused, later), later, "it is full");
}

#[tokio::test]
async fn a_wait_of_less_than_a_second_is_told_as_one() {
    let denied = spent(free(), &[100, 1]).await;
    assert!(denied.retry_after() < Duration::from_secs(1));
    assert_eq!(response::retry_after_secs(&denied), Some(1));
    assert!(response::body(&denied, NOW).contains("Please retry after 1 second."));
}

#[tokio::test]
async fn a_window_of_less_than_a_second_is_not_written() {
    let quick = Plan::new("quick", Limit::per_second(1_000).burst(10)).unwrap();
    assert_eq!(fields(&spent(quick, &[1]).await)["ratelimit-policy"], "\"quick\";q=10");
}

#[tokio::test]
async fn a_chain_lists_every_limit_and_only_those_that_refused_name_a_time() {
    let allowed = fields(&spent(gold(), &[27]).await);
    assert_eq!(allowed["ratelimit-policy"], "\"gold/burst\";q=100;w=2, \"gold/daily\";q=10000;w=86400");
    assert_eq!(allowed["ratelimit"], "\"gold/burst\";r=73;t=1, \"gold/daily\";r=9973;t=234");
    assert_eq!(allowed["x-ratelimit-limit"], "100");

    let denied = spent(gold(), &[100, 100]).await;
    assert_eq!(fields(&denied)["ratelimit"], "\"gold/burst\";r=0;t=2, \"gold/daily\";r=9900");
    assert!(response::body(&denied, NOW).contains(r#""violated-policies":["gold/burst"]"#));
}

#[tokio::test]
async fn the_reset_can_be_told_as_a_span() {
    let mut headers = HeaderMap::new();
    HeaderFields::default().reset(Reset::Delta).ietf(false).write(
        &spent(free(), &[27]).await,
        NOW,
        &mut headers,
    );
    assert_eq!(headers["x-ratelimit-reset"], "2");
    assert!(!headers.contains_key("ratelimit"));
}

#[tokio::test]
async fn of_two_layers_the_caller_is_told_of_the_one_that_leaves_less() {
    let (less, more) = (spent(free(), &[60]).await, spent(gold(), &[10]).await);
    for order in [[&less, &more], [&more, &less]] {
        let mut headers = HeaderMap::new();
        for decision in order {
            response::write_fields(decision, NOW, &mut headers);
        }
        assert_eq!(headers["x-ratelimit-remaining"], "40");
        assert_eq!(headers.get_all("ratelimit-policy").iter().count(), 2);
    }
}

#[tokio::test]
async fn a_refusal_because_the_store_failed_is_a_503_that_says_so() {
    let answer = response::refusal(&failed(FailurePolicy::Deny).await, NOW);
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(answer.headers()["x-ratelimit-degraded"], "true");
    assert_eq!(answer.headers()["x-ratelimit-remaining"], "0");
    assert_eq!(answer.headers()["ratelimit"], "\"free\";r=0;t=1");
    let body = std::str::from_utf8(answer.body()).unwrap();
    assert!(body.contains("\"Service temporarily unavailable (rate limiter backend error)\""), "{body}");
}

#[tokio::test]
async fn a_request_that_passes_because_the_store_failed_is_marked() {
    let decision = failed(FailurePolicy::Allow).await;
    assert_eq!(response::status(&decision), 200);
    assert_eq!(fields(&decision)["x-ratelimit-degraded"], "true");
}

#[tokio::test]
async fn a_grpc_call_is_refused_with_trailers_only() {
    let answer = response::grpc_refusal(&spent(free(), &[100, 100]).await, NOW);
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    assert_eq!(answer.headers()["grpc-status"], "8");
    assert_eq!(answer.headers()["grpc-message"], "Too many requests. Please retry after 5 seconds.");
    assert_eq!(answer.headers()["grpc-retry-pushback-ms"], "5000");
    assert!(answer.body().is_empty());

    let answer = response::grpc_refusal(&failed(FailurePolicy::Deny).await, NOW);
    assert_eq!(answer.headers()["grpc-status"], "14");
}

async fn failed(policy: FailurePolicy) -> Decision {
    let limiter =
        RateLimiter::builder().store(FaultyStore::down()).plans([free()]).on_failure(policy).build();
    limiter.allow("k", ["free"], 1).await.unwrap()
}
