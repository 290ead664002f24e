//! A real Envoy with the settings of the guide.

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
