//! Whatever is typed wrong gets a 4xx problem that names the field and the bound, and charges nobody.

use http::Method;
use serde_json::json;

use crate::support::{Answer, Spile};

/// What is wrong, the body, the status, the field, and the words that name the bound.
type Case = (&'static str, String, u16, &'static str, &'static str);

fn cases() -> Vec<Case> {
    let by_rule = |rest: &str| format!(r#"{{"ruleId":"default","identity":"victim"{rest}}}"#);
    let named = |identity: &str| format!(r#"{{"ruleId":"default","identity":"{identity}"}}"#);
    vec![
        ("no body", String::new(), 400, "body", "EOF"),
        ("half an object", r#"{"ruleId":"default","identity":"victim""#.into(), 400, "body", "EOF"),
        ("two objects", by_rule("") + &by_rule(""), 400, "body", "more than one"),
        ("a list for an object", r#"["default","victim"]"#.into(), 400, "body", "an object"),
        ("a number for an object", "1".into(), 400, "body", "an object"),
        ("an unknown field", by_rule(r#","tokens":1"#), 400, "tokens", "expected one of `ruleId`"),
        ("a field given twice", by_rule(r#","identity":"x""#), 400, "body", "duplicate field `identity`"),
        ("no identity", r#"{"ruleId":"default"}"#.into(), 400, "identity", "1 to 1024 bytes"),
        ("a null identity", r#"{"ruleId":"default","identity":null}"#.into(), 400, "identity", "1 to 1024"),
        (
            "a number for an identity",
            r#"{"ruleId":"default","identity":5}"#.into(),
            400,
            "identity",
            "1 to 1024",
        ),
        ("an empty identity", named(""), 400, "identity", "1 to 1024 bytes"),
        ("an identity of 1025 bytes", named(&"x".repeat(1025)), 400, "identity", "1 to 1024"),
        ("an identity of a mebibyte", named(&"x".repeat(1 << 20)), 413, "body", "65536 bytes"),
        ("a control character", named(r"vic\u0000tim"), 400, "identity", "U+0000"),
        ("a newline", named(r"victim\n"), 400, "identity", "U+000A"),
        ("a lone leading surrogate", named(r"victim\ud800"), 400, "identity", "1 to 1024"),
        ("a lone trailing surrogate", named(r"victim\udc00"), 400, "identity", "1 to 1024"),
        ("a delete character", named(r"victim\u007f"), 400, "identity", "U+007F"),
        ("a next line", named(r"victim\u0085"), 400, "identity", "U+0085"),
        ("the last control character", named(r"\u009fvictim"), 400, "identity", "U+009F"),
        ("neither rule nor plans", r#"{"identity":"victim"}"#.into(), 400, "ruleId", "`plans`"),
        ("an unknown rule", r#"{"ruleId":"nope","identity":"victim"}"#.into(), 400, "ruleId", "no rule"),
        ("an unknown plan", r#"{"plans":["nope"],"identity":"victim"}"#.into(), 400, "plans", "no plan"),
        ("no plan in the list", r#"{"plans":[],"identity":"victim"}"#.into(), 400, "plans", "1 to 32"),
        (
            "text for a list of plans",
            r#"{"plans":"free","identity":"victim"}"#.into(),
            400,
            "plans",
            "1 to 32",
        ),
        ("rule and plans", by_rule(r#","plans":["free"]"#), 400, "plans", "leave out"),
        ("a body above the bound", by_rule(&" ".repeat(64 * 1024)), 413, "body", "65536 bytes"),
    ]
}

fn cases_of_amounts() -> Vec<Case> {
    let by_rule = |rest: &str| format!(r#"{{"ruleId":"default","identity":"victim"{rest}}}"#);
    let own = |rest: &str| format!(r#"{{"ruleId":"x","identity":"victim"{rest}}}"#);
    vec![
        ("a negative cost", by_rule(r#","cost":-1"#), 400, "cost", "0 to 1000000000"),
        ("a cost of seven decimals", by_rule(r#","cost":0.0000001"#), 400, "cost", "at most six decimals"),
        (
            "a cost of twenty decimals",
            by_rule(r#","cost":1.00000000000000000001"#),
            400,
            "cost",
            "at most six decimals",
        ),
        ("text for a cost", by_rule(r#","cost":"1""#), 400, "cost", "0 to 1000000000"),
        ("a cost above the capacity", by_rule(r#","cost":11"#), 400, "cost", "above 10"),
        ("a cost above every capacity", by_rule(r#","cost":1000000001"#), 400, "cost", "1000000000"),
        ("a cost above 2^53", by_rule(r#","cost":9007199254740993"#), 400, "cost", "1000000000"),
        ("a cost above 2^64", by_rule(r#","cost":36893488147419103232"#), 400, "cost", "0 to 1000000000"),
        ("an endless cost", by_rule(r#","cost":1e999"#), 400, "cost", "0 to 1000000000"),
        ("capacity alone", own(r#","capacity":1"#), 400, "refillPerSecond", "1000000000"),
        ("refill alone", own(r#","refillPerSecond":1"#), 400, "capacity", "1000000000"),
        ("no capacity", own(r#","capacity":0,"refillPerSecond":1"#), 400, "capacity", "1 to 1000000000"),
        (
            "a capacity of seven decimals",
            own(r#","capacity":1.0000001,"refillPerSecond":1"#),
            400,
            "capacity",
            "at most six decimals",
        ),
        (
            "a capacity below one token",
            own(r#","capacity":0.5,"refillPerSecond":1"#),
            400,
            "capacity",
            "1 to 1000000000",
        ),
        (
            "a refill of seven decimals",
            own(r#","capacity":1,"refillPerSecond":1.0000001"#),
            400,
            "refillPerSecond",
            "at most six decimals",
        ),
        ("no refill", own(r#","capacity":1,"refillPerSecond":0"#), 400, "refillPerSecond", "0.000001"),
        ("negative refill", own(r#","capacity":1,"refillPerSecond":-1"#), 400, "refillPerSecond", "0.000001"),
        (
            "text for refill",
            own(r#","capacity":1,"refillPerSecond":"1""#),
            400,
            "refillPerSecond",
            "0.000001",
        ),
        (
            "a refill that takes decades",
            own(r#","capacity":1000000000,"refillPerSecond":0.01"#),
            400,
            "refillPerSecond",
            "ten years",
        ),
        (
            "a rule id with a slash",
            r#"{"ruleId":"a/b","identity":"victim","capacity":1,"refillPerSecond":1}"#.into(),
            400,
            "ruleId",
            "1 to 64",
        ),
        (
            "a limit without a rule id",
            r#"{"identity":"victim","capacity":1,"refillPerSecond":1}"#.into(),
            400,
            "ruleId",
            "1 to 64",
        ),
    ]
}

#[tokio::test]
async fn each_mistake_is_named_with_its_bound_and_charges_nobody() {
    let spile = Spile::start().await;
    for (what, body, status, field, bound) in cases().into_iter().chain(cases_of_amounts()) {
        for path in ["/v1/check", "/v1/peek", "/v1/refund"] {
            let answer = spile.post(path, body.clone()).await;
            assert_is_problem(&format!("{what} at {path}"), &answer, status, field, bound);
        }
    }
    assert_nobody_was_charged(&spile).await;
}

#[tokio::test]
async fn each_mistake_in_a_batch_is_named_with_its_place_and_charges_nobody() {
    let spile = Spile::start().await;
    let good = r#"{"ruleId":"default","identity":"victim"}"#;
    let whole_body = |case: &Case| case.3 == "body";
    let cases = cases().into_iter().chain(cases_of_amounts());
    for (what, body, status, field, bound) in cases.filter(|case| !whole_body(case)) {
        let answer = spile.post("/v1/check/batch", format!("[{good},{body}]")).await;
        assert_is_problem(what, &answer, status, &format!("[1].{field}"), bound);
    }
    assert_nobody_was_charged(&spile).await;
}

#[tokio::test]
async fn what_is_no_question_at_all_gets_the_status_that_says_so() {
    let spile = Spile::start().await;
    let body = || r#"{"ruleId":"default","identity":"victim"}"#;
    let json = &[("content-type", "application/json")][..];
    let form = &[("content-type", "application/x-www-form-urlencoded")][..];

    let answer = spile.send(Method::POST, "/v1/check", form, body()).await;
    assert_is_problem("a form", &answer, 415, "Content-Type", "application/json");
    let answer = spile.send(Method::POST, "/v1/check", &[], body()).await;
    assert_is_problem("no content type", &answer, 415, "Content-Type", "application/json");

    let answer = spile.send(Method::PUT, "/v1/check", json, body()).await.is(405).carries("allow", "POST");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    spile.send(Method::POST, "/api/ping", json, "").await.is(405).carries("allow", "GET, HEAD");
    spile.send(Method::POST, "/v1/checks", json, body()).await.is(404).says("/status", 404);
    spile.get("/", &[]).await.is(404).says("/status", 404);
    assert_nobody_was_charged(&spile).await;
}

#[tokio::test]
async fn a_charset_on_the_content_type_is_fine() {
    let spile = Spile::start().await;
    let json = &[("content-type", "Application/JSON; charset=utf-8")][..];
    spile.send(Method::POST, "/v1/check", json, r#"{"ruleId":"default","identity":"a"}"#).await.is(200);
}

fn assert_is_problem(what: &str, answer: &Answer, status: u16, field: &str, bound: &str) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {answer:#?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}: {answer:#?}");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{what}: {problem}");
    assert_eq!(problem["field"], field, "{what}: {problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with(field) && detail.contains(bound), "{what}: {detail}");
}

/// A token counts as spent even if it has come back since: the clock stands still.
async fn assert_nobody_was_charged(spile: &Spile) {
    let everything = json!({"identity": "victim", "plans": ["free", "pro", "enterprise"]});
    spile
        .peek(everything)
        .await
        .is(200)
        .says("/limits/0/remaining", 10)
        .says("/limits/1/remaining", 100)
        .says("/limits/2/remaining", 500);
    let metrics = spile.admin("/metrics").await.text;
    let decided = metrics.lines().filter(|line| line.starts_with("ratelimit_decisions_total"));
    for line in decided {
        assert!(line.ends_with(" 0"), "a decision was made: {line}");
    }
}

#[tokio::test]
async fn an_id_that_is_none_refunds_nothing_and_no_other_call_takes_one() {
    let spile = Spile::start().await;
    let asked = |id: serde_json::Value| json!({"ruleId": "default", "identity": "victim", "id": id});
    spile.check(json!({"ruleId": "default", "identity": "victim", "cost": 4})).await.is(200);
    for id in [json!(""), json!("x".repeat(129)), json!(7)] {
        let refused = spile.refund(asked(id)).await.is(400).says("/field", "id");
        assert!(refused.text.contains("1 to 128"), "{}", refused.text);
    }
    spile.check(asked(json!("7"))).await.is(400).says("/field", "id");
    spile.peek(json!({"ruleId": "default", "identity": "victim"})).await.is(200).says("/remaining", 6);
    spile.refund(asked(serde_json::Value::Null)).await.is(200).says("/refunded", true);
}
