//! Why a key is limited: what `/admin/v1/explain` says about a request is what the gateway then does with it.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Spile, echo};

const FILE: &str = r#"
    [plans]
    free = { capacity = 4, refill = "1/s" }
    pro = { capacity = 20, refill = "5/s" }
    few = { capacity = 2, refill = "1/min" }

    [[rules]]
    id = "default"
    plans = "tenant"
    anonymous_plan = "free"
    [[rules]]
    id = "closed"
    match = { path = "/a/closed" }
    plans = "banned"
    [[rules]]
    id = "shared"
    match = { path = "/b/shared" }
    key = ["literal:all"]
    plans = ["few"]
    [[rules]]
    id = "dear"
    match = { path = "/b/dear" }
    plans = ["few"]
    cost = 2
    [[rules]]
    id = "trial"
    match = { path = "/b/trial" }
    plans = ["few"]
    mode = "shadow"

    [[tenants]]
    id = "acme"
    plan = "pro"
    api_keys = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]

    [[routes]]
    path = "/a"
    upstream = "UPSTREAM"
    [[routes.limits]]
    id = "a-writes"
    match = { methods = ["POST"] }
    plans = ["few"]
    cost = 2
    [[routes.limits]]
    id = "a-reads"
    match = { methods = ["GET"] }
    plans = ["few"]

    [[routes]]
    path = "/b"
    upstream = "UPSTREAM"

    [[routes]]
    name = "members"
    path = "/members"
    upstream = "UPSTREAM"
    [[routes.limits]]
    id = "by-tenant"
    key = ["tenant"]
    plans = ["pro"]

    [[routes]]
    name = "model"
    path = "/model"
    upstream = "UPSTREAM"
    cost_from_response = "openai"
    estimate = 3

    [[routes]]
    path = "/private"
    upstream = "UPSTREAM"
    require_api_key = true

    [[routes]]
    name = "hosted"
    hosts = ["*.example"]
    path = "/b"
    upstream = "UPSTREAM"
    [[routes.limits]]
    id = "hosted-few"
    plans = ["few"]
"#;
const ACME: (&str, &str) = ("x-api-key", "test");

async fn started() -> Spile {
    let upstream = echo("one").await;
    Spile::start_with_token(&FILE.replace("UPSTREAM", &format!("http://{upstream}"))).await
}

async fn explained(spile: &Spile, query: &str) -> Value {
    let answer = spile.admin(&format!("/admin/v1/explain?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    answer.json()
}

/// The status with which the gateway answers a request of this outcome.
fn status_of(told: &Value) -> u16 {
    match told["outcome"].as_str().expect("an outcome") {
        "allowed" | "unlimited" => 200,
        "denied" => 429,
        "banned" | "neverPasses" => 403,
        "tenantsOnly" | "noKey" | "routeRefuses" => 401,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn it_tells_beforehand_what_the_gateway_will_answer_for_every_request() {
    let spile = started().await;
    let mut answers = std::collections::BTreeMap::<u16, usize>::new();
    for _round in 0..4 {
        for path in [
            "/a",
            "/a/closed",
            "/b/x",
            "/b/shared",
            "/b/dear",
            "/b/trial",
            "/members",
            "/members/1",
            "/private",
        ] {
            for (method, host) in
                [(Method::GET, "api.test"), (Method::POST, "api.test"), (Method::GET, "b.example")]
            {
                for (key, fields) in [("ip:127.0.0.1", &[][..]), ("tenant:acme", &[ACME][..])] {
                    let query = format!("key={key}&path={path}&method={method}&host={host}");
                    let told = explained(&spile, &query).await;
                    let fields = [fields, &[("host", host)]].concat();
                    let answer = spile.send(method.clone(), path, &fields).await;
                    assert_eq!(answer.status, status_of(&told), "{query}: {told}\n{}", answer.body);
                    let waits = answer.header("retry-after").map(|seconds| seconds.parse().expect("seconds"));
                    let told_ms = told["retryAfterMs"].as_u64().filter(|_| answer.status == 429);
                    assert_eq!(waits, told_ms.map(|ms| ms.div_ceil(1000)), "{query}: {told}");
                    *answers.entry(answer.status).or_default() += 1;
                }
            }
        }
    }
    for (status, least) in [(200, 20), (401, 8), (403, 8), (429, 20)] {
        assert!(answers.get(&status).is_some_and(|count| *count >= least), "{status}: {answers:?}");
    }
}

#[tokio::test]
async fn a_denial_by_the_limit_of_a_route_is_found_by_the_client_and_by_the_key_of_its_bucket() {
    let spile = started().await;
    for status in [200, 200, 429] {
        assert_eq!(spile.get("/a", &[]).await.status, status);
    }
    let told = explained(&spile, "key=ip:127.0.0.1&path=/a").await;
    assert_eq!((&told["rule"], &told["route"]), (&json!("default"), &json!("/a")), "{told}");
    assert_eq!(
        (&told["routeLimits"], &told["plans"]),
        (&json!(["a-reads"]), &json!(["free", "few"])),
        "{told}"
    );
    let bucket = &told["buckets"][1];
    let on_route = "joined:12:ip:127.0.0.18:route:/a";
    assert_eq!((&bucket["key"], &bucket["decides"]), (&json!(on_route), &json!(true)), "{told}");
    assert!(told["advice"].to_string().contains(&format!("spile reset {on_route} --plan few")), "{told}");
    for query in ["key=ip:127.0.0.1".to_owned(), format!("key={on_route}")] {
        let told = explained(&spile, &query).await;
        assert_eq!(
            (&told["rule"], &told["chosen"]),
            (&json!("a-writes"), &json!("denied")),
            "{query}: {told}"
        );
        assert_eq!((&told["route"], &told["outcome"]), (&json!("/a"), &json!("denied")), "{query}: {told}");
        assert_eq!(told["denials"][0]["limit"], "few", "{query}: {told}");
        let named = explained(&spile, &format!("{query}&rule=a-reads")).await;
        assert_eq!(
            (&named["outcome"], &named["buckets"][0]["tokens"]),
            (&json!("denied"), &json!(0)),
            "{named}"
        );
    }
    assert_eq!(explained(&spile, "key=ip:127.0.0.2&rule=a-reads").await["outcome"], "allowed");
}

#[tokio::test]
async fn a_cost_replaces_that_of_every_rule_and_a_request_without_a_route_is_said_to_be_that() {
    let spile = started().await;
    for (query, outcome, cost) in [
        ("path=/b/x&cost=4", "allowed", 4),
        ("path=/b/x&cost=5", "neverPasses", 5),
        ("path=/a&cost=3", "neverPasses", 3),
        ("rule=default&cost=5", "neverPasses", 5),
        ("rule=a-reads&cost=2", "allowed", 2),
        ("path=/b/dear&cost=1", "allowed", 1),
    ] {
        let told = explained(&spile, &format!("key=ip:127.0.0.1&{query}")).await;
        assert_eq!((&told["outcome"], &told["cost"]), (&json!(outcome), &json!(cost)), "{query}: {told}");
    }
    let told = explained(&spile, "key=ip:127.0.0.1&path=/nowhere").await;
    assert!(told["route"].is_null() && told["advice"].to_string().contains("404"), "{told}");
    let answer = spile.admin("/admin/v1/explain?key=a&cost=1000000001").await;
    assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("cost")));
}

#[tokio::test]
async fn the_estimate_of_a_route_is_what_a_request_is_said_to_pay() {
    let spile = started().await;
    let told = explained(&spile, "key=ip:127.0.0.1&path=/model/x").await;
    assert_eq!((&told["outcome"], &told["cost"]), (&json!("allowed"), &json!(3)), "{told}");
    let advice = told["advice"].to_string();
    assert!(advice.contains("Route `model` has `cost_from_response` and `estimate = \\\"3\\\"`"), "{advice}");
    let left = spile.get("/model/x", &[]).await.header("x-ratelimit-remaining").map(str::to_owned);
    assert_eq!(left.as_deref(), Some("1"), "four without the estimate");
}
