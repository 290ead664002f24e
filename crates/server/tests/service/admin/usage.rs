//! What a tenant has used, for a bill.

use std::path::Path;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;

use crate::support::{Answer, Office, Spile, TOKEN};

const FILE: &str = r#"
[clients]
trusted_proxies = ["127.0.0.1/32"]
[plans.gold]
limits = [
  { name = "burst", capacity = 20, refill = "1/s" },
  { name = "month", quota = 100, per = "month", zone = "Europe/Berlin", anchor = 15 },
  { name = "day", quota = 50, per = "day" },
]
[[rules]]
id = "default"
plans = "tenant"
[[rules]]
id = "paths"
match = { path = "/paths/*" }
key = ["tenant+path"]
plans = "tenant"
[[tenants]]
id = "acme"
plan = "gold"
[[tenants]]
id = "globex"
plan = "gold"
limits = { month = { quota = 200, per = "month", zone = "Asia/Kathmandu" } }
"#;

const USAGE: &str = "/admin/v1/tenants/acme/usage";

fn spends(tenant: &str, cost: u32) -> Value {
    json!({"ruleId": "default", "identity": format!("tenant:{tenant}"), "cost": cost})
}

#[tokio::test]
async fn the_usage_of_a_tenant_has_each_quota_with_its_window_and_each_rate() {
    let office = Office::open_with(FILE).await;
    office.spile.check(spends("acme", 8)).await.is(200);
    let usage = office.get(USAGE).await.is(200).json();
    let expected = json!({
        "tenant": "acme", "plan": "gold", "at": "2027-01-15T08:00:00.000Z",
        "quotas": [
            {"name": "gold/month", "quota": 100, "used": 8, "remaining": 92, "per": "month", "zone": "Europe/Berlin",
             "windowStart": "2027-01-15T00:00:00+01:00", "windowEnd": "2027-02-15T00:00:00+01:00"},
            {"name": "gold/day", "quota": 50, "used": 8, "remaining": 42, "per": "day", "zone": "UTC",
             "windowStart": "2027-01-15T00:00:00+00:00", "windowEnd": "2027-01-16T00:00:00+00:00"},
        ],
        "rates": [{"name": "gold/burst", "capacity": 20, "remaining": 12, "owed": 0, "refill": "1/s",
                   "resetAfterMs": 8000}],
    });
    assert_eq!(usage, expected);
    assert_eq!(office.get(USAGE).await.is(200).json(), expected, "looking spends nothing");

    office.spile.advance(Duration::from_secs(86_400));
    office.spile.check(spends("acme", 5)).await.is(200);
    office.get(USAGE).await.says("/quotas/0/used", 13).says("/quotas/1/used", 5);
    office.spile.advance(Duration::from_secs(31 * 86_400));
    office
        .get(USAGE)
        .await
        .says("/quotas/0/used", 0)
        .says("/quotas/0/windowStart", "2027-02-15T00:00:00+01:00")
        .says("/quotas/0/windowEnd", "2027-03-15T00:00:00+01:00");
}

#[tokio::test]
async fn limits_of_its_own_are_those_that_a_tenant_is_billed_by() {
    let office = Office::open_with(FILE).await;
    office.spile.check(spends("globex", 8)).await.is(200);
    office
        .get("/admin/v1/tenants/globex/usage")
        .await
        .is(200)
        .says("/quotas/0/quota", 200)
        .says("/quotas/0/used", 8)
        .says("/quotas/0/windowStart", "2027-01-01T00:00:00+05:45");
    office.get(USAGE).await.says("/quotas/0/used", 0);
}

#[tokio::test]
async fn a_plan_that_is_changed_within_the_window_keeps_what_the_tenant_has_used() {
    let office = Office::open_with(FILE).await;
    office.spile.check(spends("acme", 20)).await.is(200);
    let month = |tokens: u32| {
        json!({"limits": [{"name": "month", "quota": tokens, "per": "month",
                                                 "zone": "Europe/Berlin", "anchor": 15}]})
    };
    office.ask(Method::PUT, "/admin/v1/tenants/globex", json!({"plan": "gold"})).await.is(200);
    for (quota, remaining) in [(1_000, 980), (10, 0), (100, 80)] {
        office.ask(Method::PUT, "/admin/v1/plans/gold", month(quota)).await.is(200);
        office.get(USAGE).await.says("/quotas/0/used", 20).says("/quotas/0/remaining", remaining);
    }
}

#[tokio::test]
async fn what_a_rule_charges_by_another_key_than_the_tenant_is_not_in_the_usage() {
    let office = Office::open_with(FILE).await;
    let made = office.ask(Method::POST, "/admin/v1/tenants/acme/keys", Value::Null).await.is(201).json();
    let api_key = made["apiKey"].as_str().expect("the key is shown");
    for (path, used) in [("/", 1), ("/elsewhere", 2), ("/paths/1", 2), ("/", 3)] {
        let request = [("x-api-key", api_key), ("x-original-method", "GET"), ("x-original-uri", path)];
        office.spile.get("/v1/auth", &request).await.is(200);
        office.get(USAGE).await.is(200).says("/quotas/0/used", used);
    }
}

#[tokio::test]
async fn a_tenant_that_there_is_not_has_no_usage() {
    let office = Office::open_with(FILE).await;
    office.get("/admin/v1/tenants/nobody/usage").await.is(404);
    office.ask(Method::DELETE, USAGE, Value::Null).await.is(405);
}

/// A server on this Redis, with the token.
async fn on(url: String) -> Spile {
    let token = ("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned());
    let parsed = Config::parse(Path::new("spile.toml"), FILE.to_owned(), [token]);
    let mut config = parsed.unwrap_or_else(|why| panic!("{why}"));
    config.store.url = StoreUrl::Redis(url);
    config.store.timeout = Duration::from_secs(5);
    Spile::start_with(config).await
}

async fn usage_at(spile: &Spile) -> Answer {
    let bearer = format!("Bearer {TOKEN}");
    spile.send_to(spile.admin, Method::GET, USAGE, &[("authorization", &bearer)], "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_used_at_one_instance_is_in_the_usage_at_another_and_without_the_store_there_is_none() {
    let redis = RedisServer::start();
    let (one, other) = (on(redis.url()).await, on(redis.url()).await);
    one.check(spends("acme", 8)).await.is(200);
    usage_at(&other).await.is(200).says("/quotas/0/used", 8).says("/rates/0/remaining", 12);
    let down = on("redis://127.0.0.1:1".to_owned()).await;
    usage_at(&down).await.is(503);
}
