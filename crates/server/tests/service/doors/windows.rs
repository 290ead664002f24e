//! Every door tells of the window of a quota alike: when it ends, and that all is there again then.

use std::time::Duration;

use http::Method;
use serde_json::json;
use spile_testkit::redis::RedisServer;

use super::{House, Store};
use crate::grpc::client::{OK, Request};
use crate::support::Answer;

/// Tests start on 15 January 2027 at 08:00 UTC: nine hours into the window in Berlin, which ends on 15 February.
const CONFIG: &str = r#"
[plans.month]
quota = 1
per = "month"
zone = "Europe/Berlin"
anchor = 15
[[rules]]
id = "x"
match = { path = "/x" }
plans = ["month"]
[[rules]]
id = "described"
match = { domain = "edge", entries = ["who"] }
plans = ["month"]
"#;

/// 31 days less nine hours.
const LEFT_S: u64 = 31 * 86_400 - 9 * 3_600;

/// Who asks: each door has an address of its own, and so a quota of its own.
const PROXIES: [(&str, &str); 3] =
    [("/v1/auth/x", "203.0.113.1"), ("/v1/auth", "203.0.113.2"), ("gateway", "203.0.113.3")];

async fn proxied(house: &House, (path, address): (&str, &str)) -> Answer {
    let mut fields = vec![("x-forwarded-for", address)];
    if path == "gateway" {
        let to = house.spile.gateway.expect("the listener is on");
        return house.spile.send_to(to, Method::GET, "/x", &fields, "").await;
    }
    fields.extend([("x-original-method", "GET"), ("x-original-uri", "/x")]);
    house.spile.get(path, &fields).await
}

/// The header fields that every door over HTTP has, on a request that passes and on one that is denied.
fn told(answer: Answer, status: u16) -> Answer {
    answer
        .is(status)
        .carries("x-ratelimit-limit", "1")
        .carries("x-ratelimit-remaining", "0")
        .carries("x-ratelimit-reset", "1802646000")
        .carries("ratelimit-policy", "\"month\";q=1;w=2678400")
        .carries("ratelimit", &format!("\"month\";r=0;t={LEFT_S}"))
}

async fn all_doors_tell_of_the_window(store: Store<'_>) {
    let house = House::with(CONFIG, &store).await;
    let question = || json!({"ruleId": "x", "identity": "ann"});
    let descriptor: &[(&str, &str)] = &[("who", "ann")];
    for proxy in PROXIES {
        told(proxied(&house, proxy).await, 200);
        told(proxied(&house, proxy).await, 429)
            .carries("retry-after", &LEFT_S.to_string())
            .says("/resetAt", "2027-02-14T23:00:00.000Z");
    }
    told(house.spile.check(question()).await, 200).says("/resetAfterMs", LEFT_S * 1_000);
    told(house.spile.check(question()).await, 429).says("/retryAfterMs", LEFT_S * 1_000);
    let resp = async |identity: &str| house.resp().await.ask(&["SPILE.CHECK", "x", identity]).await;
    let wait = format!("retryAfterMs, {}", LEFT_S * 1_000);
    assert!(resp("bob").await.contains(&format!("resetAfterMs, {}", LEFT_S * 1_000)));
    assert!(resp("bob").await.contains(&wait));
    let grpc = house.grpc().await;
    assert_eq!(grpc.ask(Request::new("edge", &[descriptor])).await.overall_code, OK);
    let denied = grpc.ask(Request::new("edge", &[descriptor])).await;
    let until = denied.statuses[0].duration_until_reset.as_ref().map(|span| span.seconds);
    assert_eq!(until, i64::try_from(LEFT_S).ok());
    assert_eq!(denied.header("x-ratelimit-reset"), Some("1802646000"));

    house.spile.advance(Duration::from_micros(LEFT_S * 1_000_000 - 1));
    house.spile.check(question()).await.is(429).says("/retryAfterMs", 1).carries("retry-after", "1");
    house.spile.advance(Duration::from_micros(1));
    for proxy in PROXIES {
        proxied(&house, proxy).await.is(200);
        proxied(&house, proxy).await.is(429).carries("retry-after", &(28 * 86_400).to_string());
    }
    house.spile.check(question()).await.is(200);
    assert!(resp("bob").await.starts_with("[allowed, 1"));
    assert_eq!(grpc.ask(Request::new("edge", &[descriptor])).await.overall_code, OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_door_tells_of_the_window_of_a_quota_on_the_embedded_store() {
    all_doors_tell_of_the_window(Store::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_door_tells_of_the_window_of_a_quota_on_redis() {
    let redis = RedisServer::start();
    all_doors_tell_of_the_window(Store::Redis(&redis)).await;
}
