//! A refund at each door returns to the window of a quota that its tokens were spent in, or not at all.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;

use crate::grpc::client::{self as grpc, Request, Wrapped};
use crate::resp::client::Client;
use crate::support::Spile;

const FILE: &str = r#"
[listen]
grpc = "127.0.0.1:0"
resp = "127.0.0.1:0"
[grpc]
timeout = "5s"
[store]
timeout = "5s"
[plans.sold]
quota = 10
per = "minute"
[[rules]]
id = "sold"
match = { domain = "edge", entries = ["user"] }
plans = ["sold"]
"#;

fn question(cost: u64) -> Value {
    json!({"ruleId": "sold", "identity": "a", "cost": cost})
}

async fn left(spile: &Spile) -> Value {
    spile.peek(question(0)).await.is(200).json()["remaining"].clone()
}

async fn refund(spile: &Spile, cost: u64, at: &Value) -> Value {
    let mut question = question(cost);
    question["at"] = at.clone();
    spile.refund(question).await.is(200).json()["remaining"].clone()
}

async fn try_each_door(spile: Spile) {
    let spent = spile.check(question(8)).await.is(200).json()["at"].clone();
    assert_eq!(refund(&spile, 1, &Value::Null).await, 2, "the window is not known");
    assert_eq!(refund(&spile, 1, &spent).await, 3);
    let mut resp = Client::connect(spile.resp.expect("the listener is on")).await;
    let at = spent.to_string();
    resp.ask(&["SPILE.REFUND", "sold", "a", "1"]).await;
    assert_eq!(left(&spile).await, 3, "the window is not known");
    for words in [["AT", &at, "ID", "7"], ["ID", "8", "AT", &at]] {
        let reply = resp.ask(&[&["SPILE.REFUND", "sold", "a", "1"][..], &words[..]].concat()).await;
        assert!(reply.contains("at, nil") && reply.ends_with("refunded, 1]"), "{reply}");
    }
    assert_eq!(left(&spile).await, 5);
    let checked = resp.ask(&["SPILE.CHECK", "sold", "a", "1"]).await;
    assert!(checked.contains(&format!("at, {at}")), "{checked}");
    let wrong = resp.ask(&["SPILE.REFUND", "sold", "a", "1", "AT", "noon"]).await;
    assert_eq!(wrong, "-ERR at is not the `at` of a decision, in microseconds");

    spile.advance(Duration::from_secs(60));
    spile.check(question(5)).await.is(200).says("/remaining", 5);
    assert_eq!(refund(&spile, 3, &spent).await, 5, "the window is over");
    resp.ask(&["SPILE.REFUND", "sold", "a", "1", "AT", &at]).await;
    assert_eq!(left(&spile).await, 5);
    // Hits below zero have no time: they are of the current window.
    let envoy = grpc::Client::connect(spile.grpc.expect("the listener is on")).await;
    let hits = |value, back| {
        Request::new("edge", &[&[("user", "a")]]).with(|descriptor| {
            descriptor.hits_addend = Some(Wrapped { value });
            descriptor.is_negative_hits = back;
        })
    };
    assert_eq!(envoy.ask(hits(5, false)).await.told().1, [(1, 5)]);
    assert_eq!(envoy.ask(hits(2, true)).await.told().1, [(1, 7)]);
}

#[tokio::test]
async fn a_quota_of_the_embedded_store_takes_back_its_own_window_only() {
    let config = Config::parse(Path::new("spile.toml"), FILE.to_owned(), []).expect("a sound file");
    try_each_door(Spile::start_with(config).await).await;
}

#[tokio::test]
async fn a_quota_in_redis_takes_back_its_own_window_only() {
    let redis = RedisServer::start();
    let mut config = Config::parse(Path::new("spile.toml"), FILE.to_owned(), []).expect("a sound file");
    config.store.url = StoreUrl::Redis(redis.url());
    try_each_door(Spile::start_with(config).await).await;
}
