//! At most so many at once: `/v1/acquire`, `/v1/renew` and `/v1/release`, on either store.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use spile_server::{Config, StoreUrl};
use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::RedisServer;
use spile_testkit::wait::PATIENCE;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::doors::{House, Store};
use crate::support::{Answer, Spile};

const FILE: &str = r#"
[plans.free]
capacity = 10
refill = "1/h"
[plans.jobs]
limits = [{ name = "atonce", concurrency = 2, hold = "30s" }, { name = "rate", capacity = 9, refill = "1/h" }]
[plans.exports]
concurrency = 1
hold = "5s"
[[rules]]
id = "default"
plans = ["jobs"]
[[rules]]
id = "local"
match = { path = "/local" }
plans = ["exports"]
on_failure = "local"
[[rules]]
id = "deny"
match = { path = "/deny" }
plans = ["exports"]
on_failure = "deny"
[[rules]]
id = "plain"
match = { path = "/plain" }
plans = ["free"]
[[rules]]
id = "none"
match = { path = "/none" }
plans = "unlimited"
[[rules]]
id = "watched"
match = { path = "/watched" }
plans = ["exports"]
mode = "shadow"
"#;

/// Runs each promise on the embedded store and on a real Redis.
macro_rules! on_both_stores {
    ($($promise:ident,)*) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::House::with(super::FILE, &super::Store::Memory).await.spile).await;
            })*
        }

        mod on_redis {
            $(#[tokio::test]
            async fn $promise() {
                let redis = super::RedisServer::start();
                super::$promise(super::House::with(super::FILE, &super::Store::Redis(&redis)).await.spile).await;
            })*
        }
    };
}

on_both_stores! {
    as_many_are_let_in_as_may_be_at_work_at_once,
    a_denial_takes_neither_a_permit_nor_tokens,
    a_permit_that_is_renewed_is_held_and_one_that_is_not_ends,
    a_permit_by_plans_is_renewed_and_released_too,
    a_cost_of_nothing_takes_a_permit_and_no_tokens,
    what_has_no_concurrency_needs_no_permit,
    a_rule_in_shadow_mode_takes_no_permit,
    questions_that_could_not_release_a_permit_are_refused_and_cost_nothing,
    what_only_looks_or_gives_back_takes_no_permit,
    a_wrong_permit_is_refused_by_its_name,
    a_permit_that_was_made_up_takes_no_place_and_ends_no_other,
    operators_see_who_holds_what_and_can_free_it,
    operators_are_told_why_a_key_waits_for_a_permit,
}

fn by_rule() -> Value {
    json!({"ruleId": "default", "identity": "user:1"})
}

async fn acquire(spile: &Spile, question: Value) -> Answer {
    spile.post("/v1/acquire", question.to_string()).await
}

/// Acquires, and returns the permit.
async fn permit(spile: &Spile, question: Value) -> String {
    let acquired = acquire(spile, question).await.is(200).says("/allowed", true).json();
    acquired["permit"].as_str().unwrap_or_else(|| panic!("no permit: {acquired}")).to_owned()
}

async fn renew(spile: &Spile, permit: &str) -> Answer {
    spile.post("/v1/renew", json!({"permit": permit}).to_string()).await
}

async fn release(spile: &Spile, permit: &str) -> Answer {
    spile.post("/v1/release", json!({"permit": permit}).to_string()).await
}

async fn left(spile: &Spile, limit: &str) -> u64 {
    let peeked = spile.peek(json!({"identity": "user:1", "plans": ["jobs", "free"], "cost": 0})).await.json();
    let limits = peeked["limits"].as_array().expect("limits").clone();
    let found = limits.iter().find(|status| status["name"] == limit).expect("a limit");
    found["remaining"].as_u64().expect("a number")
}

async fn as_many_are_let_in_as_may_be_at_work_at_once(spile: Spile) {
    let first = acquire(&spile, by_rule()).await.is(200).says("/allowed", true).says("/reason", "ok");
    let first = first.says("/holdMs", 30_000).says("/renewAfterMs", 10_000).says("/limitedBy", Value::Null);
    let first = first.json()["permit"].as_str().expect("a permit").to_owned();
    let second = permit(&spile, by_rule()).await;
    assert_ne!(first, second);
    acquire(&spile, by_rule())
        .await
        .is(429)
        .says("/allowed", false)
        .says("/limitedBy", "jobs/atonce")
        .says("/reason", "limited")
        .says("/permit", Value::Null)
        .says("/holdMs", Value::Null)
        .says("/renewAfterMs", Value::Null)
        .says("/retryAfterMs", 1000)
        .carries("retry-after", "1");
    permit(&spile, json!({"ruleId": "default", "identity": "user:2"})).await;
    release(&spile, &first).await.is(200).says("/released", true);
    release(&spile, &first).await.is(200).says("/released", false);
    let third = permit(&spile, by_rule()).await;
    for permit in [second, third] {
        release(&spile, &permit).await.is(200).says("/released", true);
    }
    assert_eq!((left(&spile, "jobs/atonce").await, left(&spile, "jobs/rate").await), (2, 6));
}

async fn a_denial_takes_neither_a_permit_nor_tokens(spile: Spile) {
    let all = json!({"ruleId": "default", "identity": "user:1", "cost": 8});
    let held = permit(&spile, all.clone()).await;
    // The rate denies: no place is taken.
    acquire(&spile, all).await.is(429).says("/limitedBy", "jobs/rate");
    assert_eq!((left(&spile, "jobs/atonce").await, left(&spile, "jobs/rate").await), (1, 1));
    let other = permit(&spile, by_rule()).await;
    release(&spile, &held).await.is(200);
    release(&spile, &other).await.is(200);
    assert_eq!(left(&spile, "jobs/rate").await, 0, "tokens are not given back with the permit");
}

async fn a_permit_that_is_renewed_is_held_and_one_that_is_not_ends(spile: Spile) {
    let (kept, left_alone) = (permit(&spile, by_rule()).await, permit(&spile, by_rule()).await);
    for _ in 0..4 {
        spile.advance(Duration::from_secs(10));
        renew(&spile, &kept)
            .await
            .is(200)
            .says("/renewed", true)
            .says("/holdMs", 30_000)
            .says("/renewAfterMs", 10_000);
    }
    let gone = renew(&spile, &left_alone).await.is(410).says("/renewed", false).says("/field", "permit");
    assert!(
        gone.json()["detail"].as_str().is_some_and(|why| why.contains("hold time ended")),
        "{}",
        gone.text
    );
    release(&spile, &left_alone).await.is(200).says("/released", false);
    assert_eq!(left(&spile, "jobs/atonce").await, 1);
    release(&spile, &kept).await.is(200).says("/released", true);
    renew(&spile, &kept).await.is(410).says("/renewed", false);
}

async fn a_permit_by_plans_is_renewed_and_released_too(spile: Spile) {
    let question =
        json!({"plans": ["exports", "free"], "identity": "a\u{7e}\u{e9} \"b\"", "holder": "job@7 \u{e9}"});
    let held =
        acquire(&spile, question.clone()).await.is(200).says("/holdMs", 5000).says("/renewAfterMs", 1666);
    let held = held.json()["permit"].as_str().expect("a permit").to_owned();
    acquire(&spile, question.clone()).await.is(429).says("/limitedBy", "exports");
    renew(&spile, &held).await.is(200);
    release(&spile, &held).await.is(200).says("/released", true);
    acquire(&spile, question).await.is(200);
}

async fn a_cost_of_nothing_takes_a_permit_and_no_tokens(spile: Spile) {
    let question = json!({"ruleId": "default", "identity": "user:1", "cost": 0});
    permit(&spile, question.clone()).await;
    permit(&spile, question.clone()).await;
    acquire(&spile, question).await.is(429).says("/limitedBy", "jobs/atonce");
    assert_eq!((left(&spile, "jobs/atonce").await, left(&spile, "jobs/rate").await), (0, 9));
}

async fn what_has_no_concurrency_needs_no_permit(spile: Spile) {
    let question = json!({"ruleId": "plain", "identity": "user:1", "cost": 4});
    acquire(&spile, question.clone()).await.is(200).says("/permit", Value::Null).says("/remaining", 6);
    acquire(&spile, question.clone()).await.is(200).says("/holdMs", Value::Null).says("/remaining", 2);
    acquire(&spile, question).await.is(429).says("/limitedBy", "free");
    let unlimited = json!({"ruleId": "none", "identity": "user:1"});
    acquire(&spile, unlimited).await.is(200).says("/permit", Value::Null);
    // Plans that a caller names itself must be the right ones.
    let named = json!({"plans": ["free"], "identity": "user:1"});
    acquire(&spile, named)
        .await
        .is(400)
        .says("/field", "plans")
        .says("/detail", "plans: none of its limits is a concurrency, so that there is no permit to take");
}

async fn a_rule_in_shadow_mode_takes_no_permit(spile: Spile) {
    let question = json!({"ruleId": "watched", "identity": "user:1"});
    for _ in 0..3 {
        let acquired = acquire(&spile, question.clone()).await;
        acquired.is(200).says("/reason", "unlimited").says("/permit", Value::Null);
    }
}

async fn questions_that_could_not_release_a_permit_are_refused_and_cost_nothing(spile: Spile) {
    let why = "limit jobs/atonce is a concurrency: it takes a permit, which this question could not release; acquire one";
    let by_plans = json!({"plans": ["jobs"], "identity": "user:1"});
    for (path, question, field, detail) in [
        ("/v1/check", by_rule(), "ruleId", format!("ruleId: {why}")),
        ("/v1/check", by_plans.clone(), "plans", format!("plans: {why}")),
        ("/v1/reserve", by_rule(), "ruleId", format!("ruleId: {why}")),
        (
            "/v1/check/batch",
            json!([{"ruleId": "plain", "identity": "user:1"}, by_plans]),
            "[1].plans",
            format!("[1].plans: {why}"),
        ),
    ] {
        spile.post(path, question.to_string()).await.is(400).says("/field", field).says("/detail", detail);
    }
    let why = "limit jobs/atonce is a concurrency: it needs a permit, which could not be released here";
    for path in ["/v1/auth/default", "/v1/auth", "/api/ping"] {
        let about = [("x-original-method", "GET"), ("x-original-uri", "/x")];
        spile.get(path, &about).await.is(500).says("/detail", why);
    }
    assert_eq!((left(&spile, "jobs/rate").await, left(&spile, "free").await), (9, 10));
}

async fn what_only_looks_or_gives_back_takes_no_permit(spile: Spile) {
    let held = permit(&spile, by_rule()).await;
    spile.peek(by_rule()).await.is(200).says("/allowed", true).says("/limits/0/remaining", 1);
    spile.refund(by_rule()).await.is(200).says("/limits/1/remaining", 9);
    let charge = json!({"ruleId": "default", "identity": "user:1", "cost": 3}).to_string();
    spile.post("/v1/charge", charge).await.is(200).says("/limits/1/remaining", 6);
    assert_eq!(left(&spile, "jobs/atonce").await, 1, "the permit is as it was");
    permit(&spile, by_rule()).await;
    spile.peek(by_rule()).await.is(200).says("/allowed", false).says("/limitedBy", "jobs/atonce");
    release(&spile, &held).await.is(200).says("/released", true);
}

async fn a_wrong_permit_is_refused_by_its_name(spile: Spile) {
    let why = "permit: is not a permit; it takes the `permit` of an acquire, as it was";
    let held = permit(&spile, by_rule()).await;
    for path in ["/v1/renew", "/v1/release"] {
        for text in ["", "x", "eyJhIjoxfQ", "!!", "bnVsbA", &held[1..], &format!("{held}A")] {
            let body = json!({"permit": text}).to_string();
            spile.post(path, body).await.is(400).says("/field", "permit").says("/detail", why);
        }
        for (body, field) in [
            (json!({}), "permit"),
            (json!({"permit": 7}), "permit"),
            (json!({"permit": held, "cost": 1}), "cost"),
            (json!([held]), "body"),
        ] {
            spile.post(path, body.to_string()).await.is(400).says("/field", field);
        }
        spile.get(path, &[]).await.is(405).carries("allow", "POST");
    }
    for (member, value) in [
        ("holder", json!("h".repeat(65))),
        ("holder", json!("a\nb")),
        ("holder", json!(7)),
        ("ttl", json!(7)),
    ] {
        let mut body = by_rule();
        body[member] = value;
        acquire(&spile, body).await.is(400).says("/field", member);
    }
    assert_eq!((left(&spile, "jobs/atonce").await, left(&spile, "jobs/rate").await), (1, 8));
}

/// Asks the admin API.
async fn admin(spile: &Spile, method: http::Method, path: &str) -> Answer {
    let bearer = format!("Bearer {}", crate::support::TOKEN);
    spile.send_to(spile.admin, method, path, &[("authorization", &bearer)], "").await
}

async fn operators_see_who_holds_what_and_can_free_it(spile: Spile) {
    let path = "/admin/v1/buckets/user:1?plan=jobs";
    let none = admin(&spile, http::Method::GET, path).await.is(200).says("/buckets/0/permits/held", 0);
    none.says("/buckets/0/permits/holders", json!([])).says("/buckets/1/permits", Value::Null);
    let named =
        permit(&spile, json!({"ruleId": "default", "identity": "user:1", "holder": "worker-3"})).await;
    spile.advance(Duration::from_secs(7));
    permit(&spile, by_rule()).await;
    let start_ms = Spile::START.get() / 1_000;
    let seen = admin(&spile, http::Method::GET, path).await.is(200).says("/buckets/0/limit", "jobs/atonce");
    let seen = seen
        .says("/buckets/0/permits/held", 2)
        .says("/buckets/0/capacity", 2)
        .says("/buckets/0/tokens", 0)
        .says("/buckets/0/exists", true)
        .says("/buckets/0/refill", "held 30s")
        .says("/buckets/0/permits/holders/0/holder", "worker-3")
        .says("/buckets/0/permits/holders/0/sinceMs", start_ms)
        .says("/buckets/0/permits/holders/0/untilMs", start_ms + 30_000)
        .says("/buckets/0/permits/holders/1/holder", "127.0.0.1")
        .says("/buckets/0/permits/holders/1/untilMs", start_ms + 37_000);
    let id = seen.json()["buckets"][0]["permits"]["holders"][0]["id"].as_str().expect("an id").to_owned();
    assert!(id.len() == 41 && id.ends_with("@worker-3"), "{id}");
    admin(&spile, http::Method::DELETE, path).await.is(204);
    admin(&spile, http::Method::GET, path).await.is(200).says("/buckets/0/permits/held", 0);
    renew(&spile, &named).await.is(410);
    permit(&spile, by_rule()).await;
}

async fn operators_are_told_why_a_key_waits_for_a_permit(spile: Spile) {
    permit(&spile, by_rule()).await;
    let path = "/admin/v1/explain?key=user:1&rule=default";
    let advice = "A request would pass: 1 of 2 permits of `jobs/atonce` are held.";
    admin(&spile, http::Method::GET, path)
        .await
        .is(200)
        .says("/outcome", "allowed")
        .says("/advice/0", advice);
    permit(&spile, by_rule()).await;
    for path in [path, "/admin/v1/explain?key=user:1&path=/x"] {
        admin(&spile, http::Method::GET, path)
            .await
            .is(200)
            .says("/outcome", "denied")
            .says("/buckets/0/permits/held", 2)
            .says(
                "/advice/0",
                "2 of 2 permits of limit `jobs/atonce` are held. A request passes as soon as one is released, or ends \
                 because its holder did not renew it for 30s: `spile inspect user:1 --plan jobs` tells who holds them.",
            )
            .says("/advice/1", "To allow more, raise `concurrency` of plan `jobs`.")
            .says(
                "/advice/2",
                "To free all of them now: `spile reset user:1 --plan jobs`. Their holders are not stopped, and learn it \
                 when they renew.",
            );
    }
}

/// A server on the Redis at this address.
async fn on_redis(url: &str) -> Spile {
    with_file(FILE.to_owned(), url).await
}

async fn with_file(file: String, url: &str) -> Spile {
    let token = ("SPILE_ADMIN_TOKEN".to_owned(), crate::support::TOKEN.to_owned());
    let config = Config::parse(Path::new("spile.toml"), file, [token]);
    let mut config = config.unwrap_or_else(|why| panic!("{why}"));
    config.store.url = StoreUrl::Redis(url.to_owned());
    config.store.timeout = Duration::from_secs(5);
    Spile::start_with(config).await
}

/// Waits until the server's connection to Redis works again.
async fn until_connected(spile: &Spile) {
    let connected = async {
        while spile.peek(by_rule()).await.json()["degraded"] != false {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, connected).await.expect("it connects again");
}

#[tokio::test]
async fn a_permit_is_renewed_and_released_by_any_instance() {
    let redis = RedisServer::start();
    let (first, second) = (on_redis(&redis.url()).await, on_redis(&redis.url()).await);
    let held = permit(&first, by_rule()).await;
    renew(&second, &held).await.is(200);
    permit(&second, by_rule()).await;
    acquire(&first, by_rule()).await.is(429);
    release(&second, &held).await.is(200).says("/released", true);
    release(&first, &held).await.is(200).says("/released", false);
    permit(&first, by_rule()).await;
}

#[tokio::test]
async fn a_permit_is_renewed_under_the_file_of_the_instance_that_is_asked() {
    let redis = RedisServer::start();
    let before = on_redis(&redis.url()).await;
    let longer = with_file(FILE.replace("30s", "60s"), &redis.url()).await;
    let added =
        with_file(FILE.replace("plans = [\"jobs\"]", "plans = [\"jobs\", \"exports\"]"), &redis.url()).await;
    let held = permit(&before, by_rule()).await;
    renew(&longer, &held).await.is(200).says("/holdMs", 60_000);
    // It has its places, whatever the rule leads to by now.
    renew(&added, &held).await.is(200).says("/holdMs", 30_000);
    renew(&before, &held).await.is(200).says("/holdMs", 30_000);
    release(&added, &held).await.is(200).says("/released", true);
}

#[tokio::test]
async fn a_permit_that_was_taken_without_the_store_gets_its_place_there_when_it_is_back() {
    let mut redis = RedisServer::start();
    let spile = on_redis(&redis.url()).await;
    until_connected(&spile).await;
    redis.kill();
    let passed =
        acquire(&spile, by_rule()).await.is(200).says("/reason", "fail_open").says("/degraded", true);
    let passed = passed.json()["permit"].as_str().expect("a permit").to_owned();
    let by_share = json!({"ruleId": "local", "identity": "user:1"});
    let shared = acquire(&spile, by_share.clone()).await.is(200).says("/reason", "local");
    let shared = shared.json()["permit"].as_str().expect("a permit").to_owned();
    acquire(&spile, by_share.clone()).await.is(429).says("/reason", "local").says("/permit", Value::Null);
    let refused = json!({"ruleId": "deny", "identity": "user:1"});
    acquire(&spile, refused).await.is(503).says("/reason", "fail_closed").says("/permit", Value::Null);
    // The policies that took them keep them.
    for permit in [&passed, &shared] {
        renew(&spile, permit).await.is(200).says("/renewed", true);
    }
    redis.restart();
    until_connected(&spile).await;
    for permit in [&passed, &shared] {
        renew(&spile, permit).await.is(200).says("/renewed", true);
        renew(&spile, permit).await.is(200).says("/renewed", true);
    }
    // Each has one place in the store.
    assert_eq!(left(&spile, "jobs/atonce").await, 1);
    acquire(&spile, by_share.clone()).await.is(429).says("/degraded", false);
    for permit in [&passed, &shared] {
        release(&spile, permit).await.is(200).says("/released", true);
    }
    acquire(&spile, by_share).await.is(200).says("/degraded", false);
    assert_eq!(left(&spile, "jobs/atonce").await, 2);
}

#[tokio::test]
async fn a_store_that_is_away_says_that_a_permit_can_be_sent_again() {
    let mut redis = RedisServer::start();
    let spile = on_redis(&redis.url()).await;
    until_connected(&spile).await;
    let held = permit(&spile, by_rule()).await;
    redis.kill();
    for answer in [renew(&spile, &held).await, release(&spile, &held).await] {
        let answer = answer.is(503).carries("retry-after", "1");
        assert!(
            answer.json()["detail"].as_str().is_some_and(|why| why.contains("Send it again")),
            "{}",
            answer.text
        );
    }
}

/// The permit's own words about limits, ids and outages are not believed.
async fn a_permit_that_was_made_up_takes_no_place_and_ends_no_other(spile: Spile) {
    let held = permit(&spile, by_rule()).await;
    let ticket = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(&held).expect("base64")).expect("text");
    let mut ticket: Value = serde_json::from_str(&ticket).expect("JSON");
    permit(&spile, by_rule()).await;
    acquire(&spile, by_rule()).await.is(429);
    ticket["id"] = "f".repeat(32).into();
    ticket["degraded"] = true.into();
    ticket["places"]["question"]["ruleId"] = "nope".into();
    for limit in [json!({"concurrency": 1_000_000, "hold": "1day"}), json!({"concurrency": 1, "hold": "1s"})]
    {
        for name in ["jobs/atonce", "forged"] {
            ticket["places"]["buckets"][0]["limit"] = limit.clone();
            ticket["places"]["buckets"][0]["name"] = name.into();
            let forged = BASE64_URL_SAFE_NO_PAD.encode(ticket.to_string());
            renew(&spile, &forged).await.is(410);
            release(&spile, &forged).await.is(200).says("/released", false);
        }
    }
    spile.advance(Duration::from_secs(2));
    renew(&spile, &held).await.is(200).says("/holdMs", 30_000);
    acquire(&spile, by_rule()).await.is(429);
    let metrics = spile.admin("/metrics").await.text;
    assert!(!metrics.contains("forged"), "{metrics}");
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_acquires_leaves_no_permit() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(&redis.address()).await;
    let (spile, witness) = (on_redis(&proxy.url()).await, on_redis(&redis.url()).await);
    until_connected(&spile).await;
    let until_left = async |count: u64| {
        let seen = async { while left(&witness, "jobs/atonce").await != count {} };
        tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("never {count} left"));
    };
    // Answers come so late that every client is gone before.
    proxy.set(Mode::Delay(Duration::from_secs(2)));
    let body = by_rule().to_string();
    let request = format!(
        "POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..3 {
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(spile.http).await.expect("it listens");
            client.write_all(request.as_bytes()).await.expect("the server reads");
            clients.push(client);
        }
        until_left(0).await;
        drop(clients);
        until_left(2).await;
    }
    let metrics = spile.admin("/metrics").await.text;
    assert!(metrics.contains("http_server_requests_total{listener=\"http\",status=\"499\"} 6"), "{metrics}");
}
