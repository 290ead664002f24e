//! Why a key is limited, as `/admin/v1/explain` and `spile explain` tell it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{NOBODY, Office, Process};

const FILE: &str = r#"
[plans]
free = { capacity = 10, refill = "1/s" }
[plans.gold]
limits = [
  { name = "burst", capacity = 4, refill = "1/s" },
  { name = "daily", capacity = 100, refill = "100/day" },
]
[[rules]]
id = "default"
plans = "tenant"
anonymous_plan = "free"
[[rules]]
id = "login"
match = { path = "/login", methods = ["POST"], hosts = ["api.example"] }
key = ["ip"]
plans = ["free"]
cost = 6
[[rules]]
id = "closed"
match = { path = "/closed" }
plans = "banned"
[[rules]]
id = "paid"
plans = "tenant"
match = { path = "/paid" }
[[rules]]
id = "health"
match = { path = "/health" }
plans = "unlimited"
[[rules]]
id = "tried"
match = { path = "/tried" }
plans = ["free"]
mode = "shadow"
[[tenants]]
id = "acme"
plan = "gold"
"#;

async fn explained(office: &Office, query: &str) -> Value {
    office.get(&format!("/admin/v1/explain?{query}")).await.is(200).json()
}

fn advises(explained: &Value, words: &str) -> bool {
    let advice = explained["advice"].as_array().expect("there is advice");
    advice.iter().any(|sentence| sentence.as_str().is_some_and(|text| text.contains(words)))
}

#[tokio::test]
async fn a_denied_tenant_is_told_by_which_limit_of_which_rule_and_what_to_change() {
    let office = Office::open_with(FILE).await;
    let question = json!({"ruleId": "default", "identity": "tenant:acme"});
    for _ in 0..4 {
        office.spile.check(question.clone()).await.is(200);
    }
    for _ in 0..3 {
        office.spile.check(question.clone()).await.is(429);
    }
    let told = explained(&office, "key=tenant:acme").await;
    assert_eq!(told["outcome"], "denied", "{told}");
    assert_eq!((&told["rule"], &told["chosen"]), (&json!("default"), &json!("denied")), "{told}");
    assert_eq!((&told["tenant"], &told["plans"]), (&json!("acme"), &json!(["gold"])), "{told}");
    assert_eq!((&told["cost"], &told["retryAfterMs"]), (&json!(1), &json!(1000)), "{told}");
    let bucket = &told["buckets"][0];
    assert_eq!((&bucket["limit"], &bucket["decides"]), (&json!("gold/burst"), &json!(true)), "{told}");
    assert_eq!((&bucket["tokens"], &bucket["capacity"]), (&json!(0), &json!(4)), "{told}");
    assert_eq!((&bucket["refill"], &bucket["resetAfterMs"]), (&json!("1/s"), &json!(4000)), "{told}");
    assert_eq!((&told["buckets"][1]["tokens"], &told["buckets"][1]["decides"]), (&json!(96), &json!(false)));
    let denial = &told["denials"][0];
    assert_eq!((&denial["limit"], &denial["rule"]), (&json!("gold/burst"), &json!("default")), "{told}");
    assert_eq!((&denial["count"], &denial["reason"]), (&json!(3), &json!("limited")), "{told}");
    assert!(advises(&told, "spile tenant put acme --plan NAME"), "{told}");

    office.spile.advance(Duration::from_secs(2));
    let told = explained(&office, "key=tenant:acme&rule=default").await;
    assert_eq!((&told["outcome"], &told["chosen"]), (&json!("allowed"), &json!("named")), "{told}");
    assert!(advises(&told, "would pass now"), "{told}");
    // Nothing was spent by looking.
    assert_eq!(told["buckets"][0]["tokens"], 2);
}

#[tokio::test]
async fn the_rule_is_the_one_for_the_request_that_is_described() {
    let office = Office::open_with(FILE).await;
    for (query, rule, outcome) in [
        ("path=/login&method=POST&host=API.example:443", json!("login"), "allowed"),
        ("path=/login", json!("default"), "allowed"),
        ("path=//closed?a=b", json!("closed"), "banned"),
        ("path=/health", json!("health"), "unlimited"),
        ("path=/paid", json!("paid"), "tenantsOnly"),
        ("rule=tried", json!("tried"), "unlimited"),
        ("", json!("default"), "allowed"),
    ] {
        let told = explained(&office, &format!("key=ip:203.0.113.7&{}", query.replace('?', "%3F"))).await;
        assert_eq!((&told["rule"], &told["outcome"]), (&rule, &json!(outcome)), "{query}: {told}");
        assert!(!told["advice"].as_array().expect("a list").is_empty(), "{told}");
    }
}

#[tokio::test]
async fn a_rule_in_shadow_mode_is_explained_by_what_it_would_have_done() {
    let office = Office::open_with(FILE).await;
    let passes = json!([{"ruleId": "tried", "allowed": true, "limitedBy": null, "retryAfterMs": 0}]);
    let told = explained(&office, "key=ip:203.0.113.7&path=/tried").await;
    assert_eq!((&told["rule"], &told["outcome"]), (&json!("default"), &json!("allowed")), "{told}");
    assert_eq!(told["shadow"], passes, "{told}");
    assert!(advises(&told, "Rule `tried` is in shadow mode: it would let the request pass"), "{told}");

    let question = json!({"ruleId": "tried", "identity": "ip:203.0.113.7", "cost": 10});
    office.spile.check(question.clone()).await.is(200).says("/shadow/allowed", true);
    office.spile.check(question).await.is(200).says("/shadow/allowed", false).says("/reason", "unlimited");
    let denies = json!([{"ruleId": "tried", "allowed": false, "limitedBy": "free", "retryAfterMs": 1_000}]);
    for (query, rule, outcome, left) in
        [("path=/tried", "default", "allowed", Some(10.0)), ("rule=tried", "tried", "unlimited", None)]
    {
        let told = explained(&office, &format!("key=ip:203.0.113.7&{query}")).await;
        assert_eq!((&told["rule"], &told["outcome"]), (&json!(rule), &json!(outcome)), "{told}");
        assert_eq!((&told["shadow"], &told["retryAfterMs"]), (&denies, &json!(0)), "{told}");
        assert!(advises(&told, "it would deny the request by limit `free` for 1s"), "{told}");
        let buckets = told["buckets"].as_array().expect("a list");
        let tokens = |shadow| {
            let of_mode = buckets.iter().find(|bucket| bucket["shadow"] == shadow);
            of_mode.and_then(|bucket| bucket["tokens"].as_f64())
        };
        assert_eq!((tokens(false), tokens(true)), (left, Some(0.0)), "{told}");
    }
}

#[tokio::test]
async fn a_key_that_no_request_has_and_one_without_a_bucket_are_said_to_be_that() {
    let office = Office::open_with(FILE).await;
    let told = explained(&office, "key=user:1").await;
    assert!(advises(&told, "It has no bucket yet") && advises(&told, "`user:1` is none of these"), "{told}");
    office.spile.check(json!({"ruleId": "default", "identity": "user:1", "cost": 9})).await.is(200);
    office.spile.check(json!({"ruleId": "default", "identity": "user:1", "cost": 9})).await.is(429);
    let told = explained(&office, "key=user:1").await;
    assert!(advises(&told, "1 of 10 tokens are left") || advises(&told, "would pass now"), "{told}");
    assert!(!advises(&told, "no bucket"), "{told}");
}

#[tokio::test]
async fn what_cannot_be_explained_names_the_parameter() {
    let office = Office::open_with(FILE).await;
    let long = "a".repeat(1025);
    for (query, field) in [
        ("", "query"),
        ("key=", "key"),
        (&format!("key={long}"), "key"),
        ("key=a&rule=nope", "rule"),
        ("key=a&path=nope", "path"),
        ("key=a&path=/a/%252f%252e%252e/b%00", "path"),
        ("key=a&path=/a&method=G%20T", "method"),
        ("key=a&path=/a&host=a%20b", "host"),
        ("key=a&plan=free", "query"),
    ] {
        office.get(&format!("/admin/v1/explain?{query}")).await.is(400).says("/field", field);
    }
    office.spile.admin("/admin/v1/explain?key=a").await.is(401);
}

#[test]
fn the_command_says_it_in_words_and_as_json() {
    let spile = Process::serve_with(&[], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let run = |arguments: &[&str]| {
        let variables = [("SPILE_ADMIN", spile.address("admin")), ("SPILE_ADMIN_TOKEN", Process::TOKEN)];
        let output = Process::run_with(arguments, &variables);
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text.into_owned())
    };
    let question = r#"{"ruleId":"default","identity":"ip:203.0.113.7","cost":10}"#;
    for _ in 0..2 {
        spile.ask("http", "POST", "/v1/check", question);
    }
    let (code, text) = run(&["explain", "ip:203.0.113.7"]);
    assert_eq!(code, Some(0), "{text}");
    for words in ["under rule `default`, which denied it last", "free *", "limited", " ago", "- "] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let (_, json) = run(&["explain", "ip:203.0.113.7", "--rule", "default", "--json"]);
    assert!(serde_json::from_str::<Value>(&json).is_ok_and(|told| told["chosen"] == "named"), "{json}");
    let (code, text) = run(&["explain", "ann", "--rule", "nope"]);
    assert!(code == Some(2) && text.contains("no rule has the id"), "{text}");
}

#[test]
fn while_the_store_is_lost_the_failure_policy_is_named() {
    let spile = Process::serve_with(&["--store", NOBODY], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let answer = spile.ask("admin", "GET", "/admin/v1/explain?key=ann", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"outcome\":\"storeLost\"") && answer.contains("on_failure"), "{answer}");
}
