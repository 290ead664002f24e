//! Costs that are known later: `/v1/reserve`, `/v1/settle` and `/v1/charge`, on either store.

use std::time::Duration;

use serde_json::{Value, json};
use spile_server::{Config, StoreUrl};

use crate::support::{Answer, Spile, on_both_stores};

on_both_stores! {
    a_reservation_is_charged_at_once_and_settled_once,
    a_reservation_that_cost_more_is_charged_into_debt,
    a_cancelled_reservation_costs_nothing,
    a_reservation_that_is_not_settled_in_time_stays_charged,
    a_reservation_by_plans_and_by_an_own_limit_is_settled_too,
    what_was_used_is_charged_into_debt_and_told_if_it_is_beyond,
    a_reservation_or_a_charge_that_is_wrong_costs_nothing,
}

fn question(cost: u64) -> Value {
    json!({"ruleId": "default", "identity": "user:123", "cost": cost})
}

async fn left(spile: &Spile) -> u64 {
    spile.peek(question(0)).await.json()["remaining"].as_u64().expect("a number")
}

/// Reserves so many tokens for a minute, and returns the id.
async fn reserve(spile: &Spile, cost: u64) -> String {
    let body = json!({"ruleId": "default", "identity": "user:123", "cost": cost, "ttl": 60});
    let reserved = spile.post("/v1/reserve", body.to_string()).await.is(200).says("/allowed", true);
    reserved.json()["id"].as_str().expect("an id").to_owned()
}

async fn settle(spile: &Spile, id: &str, cost: u64) -> Answer {
    spile.post("/v1/settle", json!({"id": id, "cost": cost}).to_string()).await
}

async fn a_reservation_is_charged_at_once_and_settled_once(spile: Spile) {
    let id = reserve(&spile, 8).await;
    assert_eq!(left(&spile).await, 2);
    let body = question(8).to_string();
    let denied =
        spile.post("/v1/reserve", body).await.is(429).says("/id", Value::Null).says("/limitedBy", "free");
    assert!(denied.header("retry-after").is_some());
    settle(&spile, &id, 3).await.is(200).says("/settled", true).says("/uncovered", 0).says("/remaining", 7);
    for cost in [0, 3, 9] {
        settle(&spile, &id, cost).await.is(200).says("/settled", false).says("/remaining", 7);
    }
}

async fn a_reservation_that_cost_more_is_charged_into_debt(spile: Spile) {
    let id = reserve(&spile, 8).await;
    settle(&spile, &id, 15).await.is(200).says("/settled", true).says("/uncovered", 0).says("/remaining", 0);
    spile.check(question(0)).await.is(429);
    spile.advance(Duration::from_secs(5));
    spile.check(question(1)).await.is(429).says("/retryAfterMs", 1000);
    spile.advance(Duration::from_secs(1));
    spile.check(question(1)).await.is(200);
}

async fn a_cancelled_reservation_costs_nothing(spile: Spile) {
    let id = reserve(&spile, 10).await;
    settle(&spile, &id, 0).await.is(200).says("/settled", true).says("/remaining", 10);
}

async fn a_reservation_that_is_not_settled_in_time_stays_charged(spile: Spile) {
    let body = json!({"plans": ["enterprise"], "identity": "user:123", "cost": 100, "ttl": "1s"});
    let reserved = spile.post("/v1/reserve", body.to_string()).await.is(200).json();
    spile.advance(Duration::from_secs(1));
    let id = reserved["id"].as_str().expect("an id");
    // 200 tokens a second come back, so 100 that stayed charged show only in what was not given back on top.
    let body = json!({"plans": ["enterprise"], "identity": "user:123", "cost": 500}).to_string();
    spile.post("/v1/check", body).await.is(200);
    settle(&spile, id, 0).await.is(200).says("/settled", false).says("/remaining", 0);
}

async fn a_reservation_by_plans_and_by_an_own_limit_is_settled_too(spile: Spile) {
    for body in [
        json!({"plans": ["free", "pro"], "identity": "a", "cost": 4, "ttl": "90s"}),
        json!({"ruleId": "own", "identity": "a\u{7e}\u{e9}", "capacity": 10, "refillPerSecond": 0.5, "cost": 4}),
    ] {
        let reserved = spile.post("/v1/reserve", body.to_string()).await.is(200).says("/remaining", 6).json();
        let id = reserved["id"].as_str().expect("an id");
        settle(&spile, id, 1).await.is(200).says("/settled", true).says("/remaining", 9);
    }
}

async fn what_was_used_is_charged_into_debt_and_told_if_it_is_beyond(spile: Spile) {
    let charge = async |cost: u64| spile.post("/v1/charge", question(cost).to_string()).await.is(200);
    charge(4).await.says("/uncovered", 0).says("/remaining", 6).says("/allowed", true);
    charge(14).await.says("/uncovered", 0).says("/remaining", 0);
    spile.check(question(1)).await.is(429).says("/retryAfterMs", 9000);
    charge(5).await.says("/uncovered", 3);
    charge(1_000_000_000).await.says("/uncovered", 1_000_000_000);
    spile.check(question(1)).await.is(429).says("/retryAfterMs", 11000);
    let by_rule = json!({"ruleId": "default", "identity": "user:9"}).to_string();
    spile.post("/v1/charge", by_rule).await.is(200).says("/remaining", 9);
}

async fn a_reservation_or_a_charge_that_is_wrong_costs_nothing(spile: Spile) {
    let with = |name: &str, value: Value| {
        let mut body = question(4);
        body[name] = value;
        body.to_string()
    };
    for ttl in [json!(0), json!(0.5), json!(86_401), json!("2 days"), json!(-1), json!("soon"), json!([1])] {
        let refused = spile.post("/v1/reserve", with("ttl", ttl)).await.is(400).says("/field", "ttl");
        assert!(refused.text.contains("1 second to 1 day"), "{}", refused.text);
    }
    spile.post("/v1/reserve", with("cost", json!(11))).await.is(400).says("/field", "cost");
    spile.post("/v1/reserve", with("id", json!("x"))).await.is(400).says("/field", "id");
    spile.post("/v1/charge", with("ttl", json!("1s"))).await.is(400).says("/field", "ttl");
    spile.post("/v1/charge", with("cost", json!(1_000_000_001))).await.is(400).says("/field", "cost");
    for id in ["", "x", "eyJhIjoxfQ", "!!", "bnVsbA"] {
        settle(&spile, id, 1).await.is(400).says("/field", "id");
    }
    spile.post("/v1/settle", json!({"cost": 1}).to_string()).await.is(400).says("/field", "id");
    let id = reserve(&spile, 1).await;
    spile.post("/v1/settle", json!({"id": id}).to_string()).await.is(400).says("/field", "cost");
    spile.post("/v1/settle", json!({"id": id, "cost": -1}).to_string()).await.is(400).says("/field", "cost");
    assert_eq!(left(&spile).await, 9, "only what was reserved is charged");
}

#[tokio::test]
async fn a_reservation_is_settled_by_any_instance_and_once_by_all() {
    let mut first = Spile::start_on_redis().await;
    let mut config = Config::default();
    config.store.url = StoreUrl::Redis(first.redis().url());
    config.store.timeout = Duration::from_secs(5);
    let second = Spile::start_with(config).await;
    for _ in 0..20 {
        let id = reserve(&first, 10).await;
        let asked = [&first, &second, &first, &second].map(|spile| settle(spile, &id, 0));
        let answers = futures_util::future::join_all(asked).await;
        let settled = answers.into_iter().filter(|answer| answer.json()["settled"] == true).count();
        assert_eq!(settled, 1);
        assert_eq!((left(&first).await, left(&second).await), (10, 10));
    }
}

#[tokio::test]
async fn a_store_that_is_away_says_whether_to_send_it_again() {
    let mut spile = Spile::start_on_redis().await;
    let id = reserve(&spile, 8).await;
    spile.redis().kill();
    settle(&spile, &id, 0).await.is(503).carries("retry-after", "1");
    spile.post("/v1/charge", question(1).to_string()).await.is(503).carries("retry-after", "1");
    let passed = spile.post("/v1/reserve", question(1).to_string()).await.is(200).says("/degraded", true);
    assert!(passed.json()["id"].is_string());
}
