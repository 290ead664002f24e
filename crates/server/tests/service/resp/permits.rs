//! Permits over the Redis protocol: `SPILE.ACQUIRE`, `SPILE.RENEW` and `SPILE.RELEASE`, on either store.

use std::time::Duration;

use spile_testkit::redis::RedisServer;
use spile_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, command};
use crate::doors::{House, Store};

const FILE: &str = r#"
[plans.free]
capacity = 10
refill = "1/h"
[plans.jobs]
limits = [{ name = "atonce", concurrency = 2, hold = "30s" }, { name = "rate", capacity = 9, refill = "1/h" }]
[[rules]]
id = "default"
plans = ["jobs"]
[[rules]]
id = "holder"
match = { path = "/holder" }
plans = ["jobs"]
[plans.many]
concurrency = 1000
hold = "1h"
[[rules]]
id = "many"
match = { path = "/many" }
plans = ["many"]
[[rules]]
id = "plain"
match = { path = "/plain" }
plans = ["free"]
"#;

/// Runs each promise on the embedded store and on a real Redis.
macro_rules! on_both_stores {
    ($($promise:ident,)*) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::House::with(super::FILE, &super::Store::Memory).await).await;
            })*
        }

        mod on_redis {
            $(#[tokio::test]
            async fn $promise() {
                let redis = super::RedisServer::start();
                super::$promise(super::House::with(super::FILE, &super::Store::Redis(&redis)).await).await;
            })*
        }
    };
}

on_both_stores! {
    a_permit_is_acquired_renewed_and_released,
    permits_may_be_pipelined_and_queued,
    a_holder_is_called_as_it_says_or_as_its_connection,
    an_identity_and_a_rule_may_be_called_holder,
    what_is_wrong_is_an_error_and_costs_nothing,
    a_client_that_hangs_up_holds_no_permit,
    a_client_that_leaves_its_reply_unread_holds_no_permit,
    a_client_that_reads_its_reply_and_hangs_up_holds_its_permit,
    a_half_closed_client_is_given_a_permit_that_it_holds_or_none,
}

/// The value of a member of a reply.
fn member(reply: &str, name: &str) -> String {
    let items: Vec<&str> = reply.trim_matches(['[', ']', '{', '}']).split(", ").collect();
    let at = items.iter().position(|item| *item == name).unwrap_or_else(|| panic!("{name} in {reply}"));
    items[at + 1].to_owned()
}

async fn permit(client: &mut Client) -> String {
    let reply = client.ask(&["SPILE.ACQUIRE", "default", "user:1"]).await;
    assert_eq!(member(&reply, "allowed"), "1", "{reply}");
    member(&reply, "permit")
}

async fn left(client: &mut Client) -> String {
    member(&client.ask(&["SPILE.PEEK", "default", "user:1"]).await, "remaining")
}

async fn a_permit_is_acquired_renewed_and_released(house: House) {
    let mut client = house.resp().await;
    let reply = client.ask(&["spile.acquire", "default", "user:1", "4"]).await;
    for (name, value) in [("allowed", "1"), ("reason", "ok"), ("holdMs", "30000"), ("renewAfterMs", "10000")]
    {
        assert_eq!(member(&reply, name), value, "{reply}");
    }
    let first = member(&reply, "permit");
    let second = permit(&mut client).await;
    let denied = client.ask(&["SPILE.ACQUIRE", "default", "user:1"]).await;
    for (name, value) in [
        ("allowed", "0"),
        ("limitedBy", "jobs/atonce"),
        ("retryAfterMs", "1000"),
        ("permit", "nil"),
        ("holdMs", "nil"),
        ("renewAfterMs", "nil"),
    ] {
        assert_eq!(member(&denied, name), value, "{denied}");
    }
    for _ in 0..4 {
        house.spile.advance(Duration::from_secs(10));
        let renewed = client.ask(&["SPILE.RENEW", &first]).await;
        assert_eq!(renewed, "[renewed, 1, holdMs, 30000, renewAfterMs, 10000]");
    }
    let gone = "-GONE permit: it is not held any more; acquire another";
    assert_eq!(client.ask(&["SPILE.RENEW", &second]).await, gone);
    assert_eq!(client.ask(&["SPILE.RELEASE", &second]).await, "[released, 0]");
    assert_eq!(client.ask(&["SPILE.RELEASE", &first]).await, "[released, 1]");
    assert_eq!(client.ask(&["SPILE.RELEASE", &first]).await, "[released, 0]");
    assert_eq!(left(&mut client).await, "2");
    let _hello = client.ask(&["HELLO", "3"]).await;
    let third = permit(&mut client).await;
    assert_eq!(client.ask(&["SPILE.RELEASE", &third]).await, "{released, 1}");
    // The same permits are renewed and released over HTTP.
    let held = permit(&mut client).await;
    let body = serde_json::json!({"permit": held}).to_string();
    house.spile.post("/v1/renew", body.clone()).await.is(200);
    house.spile.post("/v1/release", body).await.is(200).says("/released", true);
}

async fn permits_may_be_pipelined_and_queued(house: House) {
    let mut client = house.resp().await;
    let acquire = command(&["SPILE.ACQUIRE", "default", "user:1"]);
    client.send(acquire.repeat(5)).await;
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(member(&client.reply().await, "permit"));
    }
    permits.retain(|permit| permit != "nil");
    assert_eq!(permits.len(), 2);
    let both = [command(&["SPILE.RENEW", &permits[0]]), command(&["SPILE.RELEASE", &permits[1]])].concat();
    client.send(both).await;
    assert_eq!(member(&client.reply().await, "renewed"), "1");
    assert_eq!(client.reply().await, "[released, 1]");
    assert_eq!(client.ask(&["MULTI"]).await, "OK");
    assert_eq!(client.ask(&["SPILE.ACQUIRE", "default", "user:1"]).await, "QUEUED");
    assert_eq!(client.ask(&["SPILE.RELEASE", &permits[0]]).await, "QUEUED");
    let done = client.ask(&["EXEC"]).await;
    assert!(done.contains("allowed, 1") && done.contains("released, 1"), "{done}");
}

async fn a_holder_is_called_as_it_says_or_as_its_connection(house: House) {
    let mut client = house.resp().await;
    client.ask(&["SPILE.ACQUIRE", "default", "user:1", "HOLDER", "worker 3"]).await;
    client.ask(&["SPILE.ACQUIRE", "default", "user:2", "2", "holder", "worker 4"]).await;
    permit(&mut client).await;
    assert_eq!(client.ask(&["CLIENT", "SETNAME", "exporter"]).await, "OK");
    client.ask(&["SPILE.ACQUIRE", "default", "user:2"]).await;
    let bearer = format!("Bearer {}", crate::support::TOKEN);
    for (key, expected) in [("user:1", ["127.0.0.1", "worker 3"]), ("user:2", ["exporter", "worker 4"])] {
        let path = format!("/admin/v1/buckets/{key}?plan=jobs");
        let headers = [("authorization", bearer.as_str())];
        let seen = house
            .spile
            .send_to(house.spile.admin, http::Method::GET, &path, &headers, "")
            .await
            .is(200)
            .json();
        let holders = seen["buckets"][0]["permits"]["holders"].as_array().expect("a list");
        let mut names: Vec<&str> = holders.iter().filter_map(|permit| permit["holder"].as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, expected);
    }
}

async fn an_identity_and_a_rule_may_be_called_holder(house: House) {
    let mut client = house.resp().await;
    for words in [
        &["SPILE.ACQUIRE", "default", "holder", "1"][..],
        &["SPILE.ACQUIRE", "default", "holder", "holder", "worker 3"],
        &["SPILE.ACQUIRE", "holder", "user:1"],
        &["SPILE.ACQUIRE", "holder", "user:1", "1", "holder", "worker 3"],
    ] {
        let reply = client.ask(words).await;
        assert!(reply.contains("allowed, 1"), "{words:?}: {reply}");
    }
}

async fn what_is_wrong_is_an_error_and_costs_nothing(house: House) {
    let mut client = house.resp().await;
    let held = permit(&mut client).await;
    let long = "h".repeat(65);
    for (words, said) in [
        (
            &["SPILE.CHECK", "default", "user:1"][..],
            "-ERR ruleId: limit jobs/atonce is a concurrency: it takes a permit, which this question could not release; \
             acquire one",
        ),
        (&["SPILE.ACQUIRE", "nope", "user:1"], "-ERR ruleId: no rule has the id \"nope\""),
        (
            &["SPILE.ACQUIRE", "default", "user:1", "1", "2"],
            "-ERR wrong number of arguments: rule identity [cost] [HOLDER name]",
        ),
        (
            &["SPILE.ACQUIRE", "default", "user:1", "HOLDER", &long],
            "-ERR holder: the holder of a permit has 65 bytes; it takes 0 to 64 without control characters",
        ),
        (
            &["SPILE.RENEW", "x"],
            "-ERR permit: is not a permit; it takes the `permit` of an acquire, as it was",
        ),
        (
            &["SPILE.RELEASE", &held[1..]],
            "-ERR permit: is not a permit; it takes the `permit` of an acquire, as it was",
        ),
        (&["SPILE.RENEW", &held, &held], "-ERR wrong number of arguments: permit"),
    ] {
        assert_eq!(client.ask(words).await, said, "{words:?}");
    }
    assert_eq!(left(&mut client).await, "1");
    let plain = client.ask(&["SPILE.ACQUIRE", "plain", "user:1"]).await;
    assert_eq!((member(&plain, "allowed"), member(&plain, "permit")), ("1".to_owned(), "nil".to_owned()));
    let documented = client.ask(&["COMMAND", "DOCS", "SPILE.ACQUIRE", "SPILE.RENEW", "SPILE.RELEASE"]).await;
    for name in ["spile.acquire", "spile.renew", "spile.release", "holder", "permit"] {
        assert!(documented.contains(name), "{name} in {documented}");
    }
}

const MANY: [&str; 3] = ["SPILE.ACQUIRE", "many", "user:1"];

/// Ways to ask for permits: alone, pipelined, inline, in a transaction, and before a farewell.
fn questions() -> [Vec<u8>; 5] {
    let one = command(&MANY);
    [
        one.clone(),
        one.repeat(5),
        b"SPILE.ACQUIRE many user:1\r\n".to_vec(),
        [command(&["MULTI"]), one.repeat(3), command(&["EXEC"])].concat(),
        [one, command(&["QUIT"])].concat(),
    ]
}

async fn until_all_are_free(house: &House) {
    let mut witness = house.resp().await;
    let free = async {
        loop {
            let seen = witness.ask(&["SPILE.PEEK", "many", "user:1"]).await;
            if member(&seen, "remaining") == "1000" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, free).await.expect("all places are free long before the hold time");
}

async fn a_client_that_hangs_up_holds_no_permit(house: House) {
    for question in questions() {
        for round in 0..100 {
            let mut client = house.resp().await;
            client.send(&question).await;
            // Some leave before the server has read the question, others while it decides or replies.
            for _ in 0..round % 8 {
                tokio::task::yield_now().await;
            }
        }
        until_all_are_free(&house).await;
    }
}

async fn a_client_that_leaves_its_reply_unread_holds_no_permit(house: House) {
    for question in questions() {
        for _ in 0..20 {
            let mut client = house.resp().await;
            client.send(&question).await;
            client.until_readable().await;
        }
        until_all_are_free(&house).await;
    }
}

async fn a_client_that_reads_its_reply_and_hangs_up_holds_its_permit(house: House) {
    let mut permits = Vec::new();
    for _ in 0..10 {
        permits.push(member(&house.resp().await.ask(&MANY).await, "permit"));
    }
    let mut quits = house.resp().await;
    quits.send([command(&MANY), command(&["QUIT"])].concat()).await;
    permits.push(member(&quits.reply().await, "permit"));
    assert_eq!(quits.reply().await, "OK");
    drop(quits);
    // Longer than it takes to learn that a client did not read its reply.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let mut other = house.resp().await;
    for permit in &permits {
        assert_eq!(member(&other.ask(&["SPILE.RENEW", permit]).await, "renewed"), "1");
        assert_eq!(other.ask(&["SPILE.RELEASE", permit]).await, "[released, 1]");
    }
}

async fn a_half_closed_client_is_given_a_permit_that_it_holds_or_none(house: House) {
    let mut other = house.resp().await;
    for question in questions() {
        for round in 0..10 {
            let mut client = house.resp().await;
            client.send(&question).await;
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            let (mut reads, mut writes) = client.split();
            writes.shutdown().await.expect("it is open");
            let mut replies = String::new();
            // A connection that is cut off has no permit, either.
            let _all_or_reset = reads.read_to_string(&mut replies).await;
            for permit in replies.split("$6\r\npermit\r\n").skip(1) {
                let permit = permit.lines().nth(1).expect("its text follows its length");
                assert_eq!(other.ask(&["SPILE.RELEASE", permit]).await, "[released, 1]", "{replies}");
            }
        }
        until_all_are_free(&house).await;
    }
    let mut client = house.resp().await;
    client
        .send([command(&["SPILE.CHECK", "plain", "user:1"]), command(&MANY), command(&["PING"])].concat())
        .await;
    let (mut reads, mut writes) = client.split();
    writes.shutdown().await.expect("it is open");
    let mut replies = String::new();
    reads.read_to_string(&mut replies).await.expect("it is answered");
    assert!(
        replies.contains("allowed") && replies.contains("-GONE ") && replies.ends_with("+PONG\r\n"),
        "{replies}"
    );
}

#[tokio::test]
async fn a_store_that_is_away_decides_by_policy_and_says_that_a_permit_can_be_sent_again() {
    let mut redis = RedisServer::start();
    let house = House::with(FILE, &Store::Redis(&redis)).await;
    let mut client = house.resp().await;
    let held = permit(&mut client).await;
    redis.kill();
    let unavailable = "-UNAVAILABLE rate limiter backend error: send it again, it is done once";
    for name in ["SPILE.RENEW", "SPILE.RELEASE"] {
        assert_eq!(client.ask(&[name, &held]).await, unavailable);
    }
    let passed = client.ask(&["SPILE.ACQUIRE", "default", "user:1"]).await;
    assert_eq!(
        (member(&passed, "reason"), member(&passed, "degraded")),
        ("fail_open".to_owned(), "1".to_owned())
    );
    let renewed = client.ask(&["SPILE.RENEW", &member(&passed, "permit")]).await;
    assert_eq!(member(&renewed, "renewed"), "1");
}
