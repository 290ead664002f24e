//! `CL.THROTTLE`: the five integers, whichever store counts.

use std::time::Duration;

use serde_json::json;
use spile_core::FailurePolicy;
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;

use super::{client, config, start};
use crate::support::{NOBODY, Spile};

async fn on_redis() -> (Spile, RedisServer) {
    let redis = RedisServer::start();
    let mut config = config();
    config.store.url = StoreUrl::Redis(redis.url());
    // A test machine may be busy; what a slow answer leads to is tested where it is meant.
    config.store.timeout = Duration::from_secs(5);
    (Spile::start_with(config).await, redis)
}

#[tokio::test]
async fn the_integers_are_those_that_redis_cell_promises_on_memory() {
    the_integers_are_those_that_redis_cell_promises(&start().await).await;
}

#[tokio::test]
async fn the_integers_are_those_that_redis_cell_promises_on_redis() {
    let (spile, _redis) = on_redis().await;
    the_integers_are_those_that_redis_cell_promises(&spile).await;
}

async fn the_integers_are_those_that_redis_cell_promises(spile: &Spile) {
    let mut client = client(spile).await;
    // The example of redis-cell's own documentation: a burst of 15, 30 tokens in 60 seconds.
    assert_eq!(client.throttle("user123 15 30 60 1").await, "[0, 16, 15, -1, 2]");
    assert_eq!(client.throttle("user123 15 30 60").await, "[0, 16, 14, -1, 4]");
    assert_eq!(client.throttle("user123 15 30 60 0").await, "[0, 16, 14, -1, 4]");
    assert_eq!(client.throttle("user123 15 30 60 14").await, "[0, 16, 0, -1, 32]");
    assert_eq!(client.throttle("user123 15 30 60").await, "[1, 16, 0, 2, 32]");
    spile.advance(Duration::from_millis(1_999));
    assert_eq!(client.throttle("user123 15 30 60").await, "[1, 16, 0, 1, 31]");
    spile.advance(Duration::from_millis(1));
    assert_eq!(client.throttle("user123 15 30 60").await, "[0, 16, 0, -1, 32]");
    assert_eq!(client.throttle("somebody-else 15 30 60 16").await, "[0, 16, 0, -1, 32]");
}

#[tokio::test]
async fn other_parameters_for_a_key_keep_what_it_has() {
    let spile = start().await;
    let mut client = client(&spile).await;
    assert_eq!(client.throttle("k 9 1 1 4").await, "[0, 10, 6, -1, 4]");
    // A larger burst gives nobody tokens, and a smaller one takes what is above it.
    assert_eq!(client.throttle("k 99 10 1 0").await, "[0, 100, 6, -1, 10]");
    assert_eq!(client.throttle("k 2 1 1 0").await, "[0, 3, 3, -1, 0]");
    assert_eq!(client.throttle("k 9 1 1 0").await, "[0, 10, 6, -1, 4]");
}

#[tokio::test]
async fn the_same_bucket_is_asked_over_http() {
    let spile = start().await;
    let mut client = client(&spile).await;
    client.throttle("user:1 15 30 60 3").await;
    let question =
        json!({"ruleId": "cl.throttle", "identity": "user:1", "capacity": 16, "refillPerSecond": 0.5});
    spile.check(question).await.is(200).says("/remaining", 12);
    assert_eq!(client.throttle("user:1 15 30 60 0").await, "[0, 16, 12, -1, 8]");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order_however_it_is_split() {
    let (on_redis, _redis) = on_redis().await;
    for spile in [start().await, on_redis] {
        let mut client = client(&spile).await;
        let mut bytes = Vec::new();
        for _ in 0..300 {
            bytes.extend(super::client::command(&["CL.THROTTLE", "hot", "199", "1", "60"]));
            bytes.extend(b"ECHO between\r\n");
        }
        for piece in bytes.chunks(1_000) {
            client.send(piece).await;
        }
        let mut allowed = 0;
        for _ in 0..300 {
            allowed += usize::from(client.reply().await.starts_with("[0,"));
            assert_eq!(client.reply().await, "between");
        }
        assert_eq!(allowed, 200);
    }
}

#[tokio::test]
async fn a_run_of_throttles_takes_one_round_trip_to_redis() {
    let (spile, redis) = on_redis().await;
    let mut client = client(&spile).await;
    client.throttle("warm 199 1 60").await;
    let before = redis.info("stats", "total_commands_processed").expect("Redis counts");
    let run = super::client::command(&["CL.THROTTLE", "hot", "99", "1", "60"]).repeat(100);
    client.send(run).await;
    for left in (0..100).rev() {
        let reply = client.reply().await;
        assert!(reply.starts_with(&format!("[0, 100, {left}, -1,")), "{left} in {reply}");
    }
    let after = redis.info("stats", "total_commands_processed").expect("Redis counts");
    let (before, after): (u64, u64) = (before.parse().expect("a number"), after.parse().expect("a number"));
    // Scripts and what they call, and the registry's look now and then; a call for each would be over 100.
    assert!(after - before < 60, "{before} to {after}");
}

#[tokio::test]
async fn a_bad_argument_is_an_error_that_charges_nothing_and_keeps_the_connection() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let table = [
        ("k", "-ERR wrong number of arguments for 'cl.throttle' command"),
        ("k 1 1 1 1 1", "-ERR wrong number of arguments for 'cl.throttle' command"),
        ("k -1 1 1", "-ERR max_burst '-1' is not a whole number from 0 to 999999999"),
        ("k 1000000000 1 1", "-ERR max_burst '1000000000' is not a whole number from 0 to 999999999"),
        ("k 1 0 1", "-ERR count '0' is not a whole number from 1 to 1000000000"),
        ("k 1 1 soon", "-ERR period 'soon' is not a whole number from 1 to 315619200"),
        ("k 1 1 1 1e9", "-ERR quantity '1e9' is not a whole number from 0 to 1000000000"),
        ("k 1 1 1 3", "-ERR quantity 3 is above 2, which is max_burst + 1: it can never pass"),
    ];
    for (arguments, said) in table {
        assert_eq!(client.throttle(arguments).await, said, "{arguments}");
    }
    let long = "k".repeat(1_025);
    let said = client.ask(&["CL.THROTTLE", &long, "1", "1", "1"]).await;
    assert_eq!(said, "-ERR key: the key has 1025 bytes; it takes 1 to 1024");
    client.send(b"*5\r\n$11\r\nCL.THROTTLE\r\n$2\r\n\xff\xfe\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n").await;
    assert!(client.reply().await.starts_with("-ERR key is not UTF-8"), "binary keys are refused");
    assert_eq!(client.throttle("k 1 1 1 0").await, "[0, 2, 2, -1, 0]");
}

fn without_redis(on_failure: FailurePolicy) -> Config {
    let mut config = config();
    config.store.url = StoreUrl::Redis(NOBODY.to_owned());
    config.store.on_failure = on_failure;
    config.store.replicas = 2;
    config
}

#[tokio::test]
async fn a_store_that_fails_is_decided_by_policy() {
    let spile = Spile::start_with(without_redis(FailurePolicy::Allow)).await;
    assert_eq!(client(&spile).await.throttle("k 9 1 1").await, "[0, 10, 10, -1, 0]");

    let spile = Spile::start_with(without_redis(FailurePolicy::Deny)).await;
    let mut refused = client(&spile).await;
    let said = "-UNAVAILABLE rate limiter backend error: nothing was decided, retry after 1000 ms";
    assert_eq!(refused.throttle("k 9 1 1").await, said);
    assert_eq!(refused.throttle("k 9 1 1 0").await, said);
    assert_eq!(refused.ask(&["PING"]).await, "PONG");

    // Each of two instances decides by half of the limit; the burst that was asked for is still named.
    let spile = Spile::start_with(without_redis(FailurePolicy::Local)).await;
    let mut client = client(&spile).await;
    assert_eq!(client.throttle("k 9 1 1 5").await, "[0, 10, 0, -1, 10]");
    assert_eq!(client.throttle("k 9 1 1").await, "[1, 10, 0, 2, 10]");
}
