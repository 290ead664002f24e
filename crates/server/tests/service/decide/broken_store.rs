//! What callers see when the store does not answer: a decision by policy that says so.

use std::time::Duration;

use serde_json::json;
use spile_core::FailurePolicy;
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;

use crate::support::{NOBODY, Spile};

/// A server whose Redis is not there.
async fn without_redis(on_failure: FailurePolicy) -> Spile {
    let mut config = Config::default();
    config.store.url = StoreUrl::Redis(NOBODY.to_owned());
    config.store.on_failure = on_failure;
    config.store.replicas = 2;
    Spile::start_with(config).await
}

/// The sum of all samples whose line starts so.
fn sum_of(metrics: &str, start: &str) -> f64 {
    let samples = metrics.lines().filter(|line| line.starts_with(start));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn question() -> serde_json::Value {
    json!({"ruleId": "default", "identity": "user:123"})
}

#[tokio::test]
async fn allow_lets_requests_pass_and_marks_them() {
    let spile = without_redis(FailurePolicy::Allow).await;
    spile
        .check(question())
        .await
        .is(200)
        .says("/reason", "fail_open")
        .says("/degraded", true)
        .carries("x-ratelimit-degraded", "true");
    spile.get("/api/ping", &[]).await.is(200).carries("x-ratelimit-degraded", "true");
}

#[tokio::test]
async fn an_instance_that_starts_without_redis_waits_a_little_for_the_registry_and_is_then_ready() {
    for policy in [FailurePolicy::Allow, FailurePolicy::Local] {
        let spile = without_redis(policy).await;
        let waiting = spile.admin("/readyz").await.is(503).text;
        assert!(waiting.contains("registry not read yet: the registry is out of reach"), "{waiting}");
        let patience = spile_testkit::wait::PATIENCE;
        let ready =
            tokio::time::timeout(patience, async { while spile.admin("/readyz").await.status != 200 {} });
        ready.await.expect("it does not wait for ever");
        let text = spile.admin("/readyz").await.text;
        let told = ["ready\n", "registry not read yet: ", "store lost: "].map(|words| text.contains(words));
        assert_eq!(told, [true; 3], "{text}");
    }
}

#[tokio::test]
async fn local_holds_no_more_keys_than_the_embedded_store_would() {
    let mut config = Config::default();
    config.store.url = StoreUrl::Redis(NOBODY.to_owned());
    config.store.on_failure = FailurePolicy::Local;
    config.store.max_keys = 10;
    let spile = Spile::start_with(config).await;
    for caller in 0..30 {
        let question = json!({"ruleId": "default", "identity": format!("user:{caller}")});
        spile.check(question).await.is(200).says("/reason", "local");
    }
    let metrics = spile.admin("/metrics").await.text;
    assert!(metrics.contains("ratelimit_embedded_keys 10\n"), "{metrics}");
    assert!(metrics.contains("ratelimit_embedded_evictions_total 20\n"), "{metrics}");
}

#[tokio::test]
async fn deny_refuses_with_503_and_says_why() {
    let spile = without_redis(FailurePolicy::Deny).await;
    spile
        .check(question())
        .await
        .is(503)
        .says("/allowed", false)
        .says("/reason", "fail_closed")
        .says("/retryAfterMs", 1000)
        .says("/limitedBy", serde_json::Value::Null)
        .carries("retry-after", "1")
        .carries("cache-control", "no-store");
    spile
        .get("/api/ping", &[])
        .await
        .is(503)
        .carries("retry-after", "1")
        .says("/detail", "Service temporarily unavailable (rate limiter backend error)");
    let metrics = spile.admin("/metrics").await.text;
    let counted =
        metrics.lines().any(|line| line.starts_with("ratelimit_failclosed_total") && !line.ends_with(" 0"));
    assert!(counted, "{metrics}");
    spile.admin("/readyz").await.is(503);
    spile.admin("/livez").await.is(200);
}

#[tokio::test]
async fn local_decides_with_this_instances_share() {
    let spile = without_redis(FailurePolicy::Local).await;
    for _ in 0..5 {
        spile.check(question()).await.is(200).says("/reason", "local").says("/degraded", true);
    }
    spile.check(question()).await.is(429).says("/limitedBy", "free").carries("x-ratelimit-degraded", "true");
    let metrics = spile.admin("/metrics").await.text;
    assert!((sum_of(&metrics, "ratelimit_local_total{") - 6.0).abs() < 1e-9, "{metrics}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_shown_as_slow_and_what_is_not_sent_to_it_apart() {
    let (redis, mut config) = (RedisServer::start(), Config::default());
    config.store.url = StoreUrl::Redis(redis.url());
    let spile = Spile::start_with(config).await;
    until_reason(&spile, "ok").await;
    redis.freeze();
    let before = spile.admin("/metrics").await.text;
    for _ in 0..60 {
        spile.check(question()).await.is(200).says("/reason", "fail_open");
    }
    let after = spile.admin("/metrics").await.text;
    let more = |start: &str| sum_of(&after, start) - sum_of(&before, start);
    let timed = more("ratelimit_store_duration_seconds_count{op=\"spend\"}");
    let fast = more("ratelimit_store_duration_seconds_bucket{op=\"spend\",le=\"0.025\"}");
    let failed =
        |reason: &str| more(&format!("ratelimit_store_failures_total{{op=\"spend\",reason=\"{reason}\"}}"));
    let unsent = failed("breakeropen") + failed("overloaded");
    assert!(timed >= 1.0 && unsent >= 1.0, "{timed} timed, {unsent} not sent\n{after}");
    assert!((timed + unsent - 60.0).abs() < 1e-9, "{timed} timed, {unsent} not sent\n{after}");
    // One may be under way when its connection is given up.
    assert!(fast <= 1.0 && fast < timed, "{fast} of {timed} look fast\n{after}");
}

#[tokio::test]
async fn a_refund_that_no_store_can_take_is_a_503() {
    let spile = without_redis(FailurePolicy::Allow).await;
    let refused = spile.refund(question()).await.is(503).carries("retry-after", "1");
    assert!(refused.text.contains("Nothing was given back."), "{}", refused.text);
}

#[tokio::test]
async fn a_refund_that_may_have_been_given_says_so_and_is_given_once_under_its_id() {
    let redis = RedisServer::start();
    let mut config = Config::default();
    config.store.url = StoreUrl::Redis(redis.url());
    config.store.timeout = Duration::from_millis(500);
    let spile = Spile::start_with(config).await;
    let of = |cost| json!({"ruleId": "default", "identity": "user:123", "cost": cost});
    let refund = || json!({"ruleId": "default", "identity": "user:123", "cost": 3, "id": "order 7"});
    spile.check(of(8)).await.is(200).says("/reason", "ok").says("/remaining", 2);
    redis.freeze();
    let late = spile.refund(refund()).await.is(503);
    assert!(late.text.contains("may have been given back"), "{}", late.text);
    redis.thaw();
    // The breaker may need a moment to find that Redis is back.
    let mut again = spile.refund(refund()).await;
    while again.status == 503 {
        again = spile.refund(refund()).await;
    }
    again.is(200).says("/remaining", 5);
    spile.refund(refund()).await.is(200).says("/refunded", false).says("/remaining", 5);
}

#[tokio::test]
async fn decisions_come_from_redis_again_once_it_answers() {
    let mut spile = Spile::start_on_redis().await;
    spile.check(question()).await.is(200).says("/reason", "ok").says("/remaining", 9);
    spile.redis().kill();
    until_reason(&spile, "fail_open").await;
    spile.redis().launch_again();
    until_reason(&spile, "ok").await;
}

/// Asks until decisions are made that way.
async fn until_reason(spile: &Spile, reason: &str) {
    let patience = spile_testkit::wait::PATIENCE;
    let asking = async { while spile.check(question()).await.json()["reason"] != reason {} };
    let done = tokio::time::timeout(patience, asking).await;
    done.unwrap_or_else(|_| panic!("no decision said {reason} within {patience:?}"));
}
