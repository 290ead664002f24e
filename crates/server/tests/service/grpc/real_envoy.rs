//! A real Envoy with the settings of the guide.

use std::time::Duration;

use serde_json::json;
use spile_testkit::wait::PATIENCE;

use super::config;
use crate::auth::proxies::{Proxy, Site, blocks, envoy};
use crate::support::{Answer, Spile};

const GUIDE: &str = include_str!("../../../../../docs/guide/envoy.md");

/// Descriptors of a header that the client chooses, twice, and rules for them.
const BY_USER: &str = "
                        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
                        - actions: [{ request_headers: { header_name: x-user, descriptor_key: name } }]";
const USERS: &str = r#"
[plans.user]
capacity = 3
refill = "3/min"
[[rules]]
id = "user"
match = { domain = "edge", entries = ["user"] }
plans = ["user"]
[[rules]]
id = "name"
match = { domain = "edge", entries = ["name"] }
plans = ["user"]
[grpc]
timeout = "5s"                  # a test machine may be busy
"#;

const ANN: &str = "127.0.0.7";
const BOB: &str = "127.0.0.8";

/// A Spile with the guide's rules, ten requests for each address, and an Envoy with the guide's settings.
async fn start() -> (Spile, Proxy) {
    let rules = blocks(GUIDE, "toml")[0]
        .replace("127.0.0.1:8083", "127.0.0.1:0")
        .replace("capacity = 100\n", "capacity = 10\n");
    let spile = Spile::start_with(config(&format!("{rules}{USERS}"))).await;
    let by_address = "- actions: [{ remote_address: {} }]";
    let settings = blocks(GUIDE, "yaml")[0]
        .replace("timeout: 0.02s", "timeout: 5s")
        .replace(by_address, &format!("{by_address}{BY_USER}"));
    let site = Site::before(spile.grpc.expect("the listener is on")).await;
    let command = envoy(&site, &settings);
    (spile, Proxy::start(site, command).await)
}

/// A Spile with the guide's budget of tokens, but for so many of them, and an Envoy with the guide's settings for it, before an
/// application whose responses cost three tokens.
async fn start_with_budget(tokens: u32) -> (Spile, Proxy) {
    let (_, budget) = GUIDE.split_once("## Token quota").expect("the guide has it");
    let rules = blocks(budget, "toml")[0]
        .replace("127.0.0.1:8083", "127.0.0.1:0")
        .replace("capacity = 10000", &format!("capacity = {tokens}"))
        .replace("10000/hour", "1/hour");
    let patient = "[grpc]\ntimeout = \"5s\"\n";
    let spile = Spile::start_with(config(&format!("{rules}{patient}"))).await;
    let [filter, route, ..] = blocks(budget, "yaml")[..] else { panic!("a filter and a route") };
    let at_route = "- match: { prefix: / }\n                          route: { cluster: app }\n";
    let at_filter = "http_filters:\n";
    let settings = blocks(GUIDE, "yaml")[0].replace("timeout: 0.02s", "timeout: 5s");
    assert!(settings.contains(at_route) && settings.contains(at_filter));
    let settings = settings
        .replace(at_filter, &format!("{at_filter}{}", indented(filter, 18)))
        .replace(at_route, indented(route, 24).trim_start());
    let site =
        Site::before(spile.grpc.expect("the listener is on")).await.with_field("x-tokens-used: 3").await;
    let command = envoy(&site, &settings);
    (spile, Proxy::start(site, command).await)
}

fn indented(block: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    block.lines().flat_map(|line| [&indent, line, "\n"]).collect()
}

/// Waits until Ann has so many tokens left: Envoy tells what a request cost when it is over.
async fn until_left(spile: &Spile, tokens: u64) {
    let question = || json!({"identity": "edge|user=ann", "plans": ["tokens"]});
    let told = async { while spile.peek(question()).await.json()["remaining"] != tokens {} };
    tokio::time::timeout(PATIENCE, told).await.expect("Envoy tells what the request cost");
}

#[track_caller]
fn tells_each_field_once(answer: &Answer) {
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"] {
        assert_eq!(answer.headers.get_all(name).iter().count(), 1, "{name} in {answer:?}");
    }
}

#[tokio::test]
async fn each_client_has_as_many_requests_as_its_plan_says() {
    let (_spile, envoy) = start().await;
    for _ in 0..10 {
        tells_each_field_once(
            &envoy.ask(ANN, b"GET /", &[]).await.is(200).carries("x-ratelimit-limit", "10"),
        );
    }
    tells_each_field_once(&envoy.ask(ANN, b"GET /", &[]).await.is(429).carries("retry-after", "1"));
    envoy.ask(ANN, b"GET /", &[("x-forwarded-for", b"1.2.3.4")]).await.is(429);
    envoy.ask(BOB, b"GET /", &[]).await.is(200);
}

#[tokio::test]
async fn a_budget_of_nine_tokens_is_used_up_by_three_responses_of_three() {
    let (spile, envoy) = start_with_budget(9).await;
    for left in [6, 3, 0] {
        envoy.ask(ANN, b"GET /", &[("x-user", b"ann")]).await.is(200);
        until_left(&spile, left).await;
    }
    // Each refusal is told of when it is over, too, and costs nothing.
    for _ in 0..20 {
        envoy.ask(ANN, b"GET /", &[("x-user", b"ann")]).await.is(429);
    }
    envoy.ask(ANN, b"GET /", &[("x-user", b"bob")]).await.is(200);
    until_left(&spile, 0).await;
}

#[tokio::test]
async fn a_response_that_costs_more_than_is_left_is_owed() {
    let (spile, envoy) = start_with_budget(4).await;
    let ask = async || envoy.ask(ANN, b"GET /", &[("x-user", b"ann")]).await;
    for left in [1, 0] {
        ask().await.is(200);
        until_left(&spile, left).await;
    }
    ask().await.is(429);
    // Two are owed, and one comes back in an hour.
    spile.advance(Duration::from_secs(2 * 3_600));
    ask().await.is(429);
    spile.advance(Duration::from_secs(3_600));
    ask().await.is(200);
}

#[tokio::test]
async fn no_spelling_of_a_path_gets_around_the_limit_of_its_route() {
    let (_spile, envoy) = start().await;
    for _ in 0..5 {
        envoy.ask(ANN, b"POST /login", &[]).await.is(200);
    }
    for begins in
        [&b"POST /login"[..], b"POST //login", b"POST /%6cogin", b"POST /login/", b"POST /x/../login"]
    {
        envoy.ask(ANN, begins, &[]).await.is(429);
    }
    envoy.ask(ANN, b"POST /free", &[]).await.is(200);
}

#[tokio::test]
async fn a_value_that_is_no_text_is_limited_like_any_other() {
    let (_spile, envoy) = start().await;
    for _ in 0..3 {
        envoy.ask(ANN, b"GET /", &[("x-user", b"bob\xff")]).await.is(200);
    }
    envoy.ask(ANN, b"GET /", &[("x-user", b"bob\xff")]).await.is(429);
    envoy.ask(ANN, b"GET /", &[("x-user", b"bob\xfe")]).await.is(200);
}

#[tokio::test]
async fn a_value_of_34_kilobytes_in_two_descriptors_is_limited_like_any_other() {
    let (_spile, envoy) = start().await;
    let long = "x".repeat(34_000);
    for _ in 0..3 {
        envoy.ask(ANN, b"GET /", &[("x-user", long.as_bytes())]).await.is(200);
    }
    envoy.ask(ANN, b"GET /", &[("x-user", long.as_bytes())]).await.is(429);
}
