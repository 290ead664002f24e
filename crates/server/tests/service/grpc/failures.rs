//! When the store fails, or does not answer in Envoy's time.

use std::time::Duration;

use spile_server::StoreUrl;
use spile_testkit::redis::RedisServer;
use tokio::time::Instant;

use super::client::{OK, OVER_LIMIT};
use super::{client, config, edge};
use crate::support::{NOBODY, Spile};

const RULES: &str = r#"
[listen]
grpc = "127.0.0.1:0"
[grpc]
timeout = "200ms"
[store]
replicas = 2
[plans.ten]
capacity = 10
refill = "1/s"
[[rules]]
id = "open"
match = { domain = "edge", entries = ["open"] }
plans = ["ten"]
[[rules]]
id = "closed"
match = { domain = "edge", entries = ["closed"] }
plans = ["ten"]
on_failure = "deny"
[[rules]]
id = "local"
match = { domain = "edge", entries = ["local"] }
plans = ["ten"]
on_failure = "local"
"#;

#[tokio::test]
async fn each_rule_says_what_happens_and_the_strictest_holds_for_all() {
    let mut config = config(RULES);
    config.store.url = StoreUrl::Redis(NOBODY.to_owned());
    let spile = Spile::start_with(config).await;
    let client = client(&spile).await;
    let (open, closed, local): (&[_], &[_], &[_]) = (&[("open", "x")], &[("closed", "x")], &[("local", "x")]);

    let passed = client.ask(edge(&[open])).await;
    assert_eq!(passed.told(), (OK, vec![(OK, 10)]));
    assert_eq!(passed.header("x-ratelimit-degraded"), Some("true"));
    let refused = client.ask(edge(&[closed])).await;
    assert_eq!(refused.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.statuses[0].duration_until_reset.expect("a wait").seconds, 1);
    assert_eq!(client.ask(edge(&[open, closed])).await.overall_code, OVER_LIMIT);
    // Each of two instances decides by half of the limit.
    assert_eq!(client.ask(edge(&[local, open]).hits(5)).await.told(), (OK, vec![(OK, 0), (OK, 0)]));
    assert_eq!(client.ask(edge(&[local])).await.overall_code, OVER_LIMIT);
    let metrics = spile.admin("/metrics").await.text;
    assert!(metrics.contains("rpc_server_requests_total{listener=\"grpc\",result=\"unavailable\"} 2\n"));
}

#[tokio::test]
async fn a_store_that_hangs_is_not_waited_for_longer_than_envoy_waits() {
    let redis = RedisServer::start();
    let mut config = config(&RULES.replace("timeout = \"200ms\"", ""));
    config.store.url = StoreUrl::Redis(redis.url());
    config.store.timeout = Duration::from_secs(60);
    let spile = Spile::start_with(config).await;
    let client = client(&spile).await;
    // On a busy machine even a store that is well may take longer than Envoy waits.
    assert_eq!(client.ask(edge(&[&[("open", "x")]])).await.overall_code, OK);
    redis.freeze();
    let mut waits = Vec::new();
    for _ in 0..3 {
        let asked = Instant::now();
        assert_eq!(client.ask(edge(&[&[("closed", "x")]])).await.overall_code, OVER_LIMIT);
        waits.push(asked.elapsed());
    }
    redis.thaw();
    // Envoy waits for 20 ms. A busy machine may be late, but hardly three times in a row.
    let fastest = waits.iter().min().expect("it was asked");
    assert!(*fastest < Duration::from_millis(200), "{waits:?}");
}
