//! What `POST /v1/check` and its siblings answer, on either store.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Spile, on_both_stores};

on_both_stores! {
    a_rule_lets_its_plan_through_and_then_says_how_long_to_wait,
    the_decision_has_exactly_the_documented_shape,
    a_decision_carries_both_families_of_header_fields,
    plans_are_a_chain_that_is_spent_whole_or_not_at_all,
    a_cost_may_be_a_part_of_a_token,
    a_caller_may_bring_its_own_limit,
    a_limit_of_ones_own_never_spends_from_a_plan_of_that_name,
    looking_spends_nothing,
    a_refund_gives_back_what_was_spent_and_no_more,
    a_refund_with_an_id_is_given_once_and_says_so,
    a_batch_answers_each_question_in_order,
    one_bad_question_keeps_a_whole_batch_from_being_charged,
    a_batch_takes_one_to_a_thousand_questions,
    the_largest_batch_of_legal_questions_is_answered,
}

async fn a_rule_lets_its_plan_through_and_then_says_how_long_to_wait(spile: Spile) {
    let question = || json!({"ruleId": "default", "identity": "user:123"});
    for left in (0..10).rev() {
        spile.check(question()).await.is(200).says("/allowed", true).says("/remaining", left);
    }
    spile
        .check(question())
        .await
        .is(429)
        .says("/allowed", false)
        .says("/limitedBy", "free")
        .says("/reason", "limited")
        .says("/retryAfterMs", 1000);
    spile.advance(Duration::from_secs(1));
    spile.check(question()).await.is(200).says("/remaining", 0);
}

async fn the_decision_has_exactly_the_documented_shape(spile: Spile) {
    let answer = spile.check(json!({"ruleId": "default", "identity": "user:123"})).await.is(200);
    let limit = json!({"name": "free", "limit": 10, "remaining": 9, "retryAfterMs": 0, "resetAfterMs": 1000});
    let expected = json!({
        "allowed": true, "limit": 10, "remaining": 9, "retryAfterMs": 0, "resetAfterMs": 1000,
        "limitedBy": null, "reason": "ok", "degraded": false, "at": Spile::START.get(), "limits": [limit],
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

async fn a_decision_carries_both_families_of_header_fields(spile: Spile) {
    let question = || json!({"ruleId": "default", "identity": "user:123", "cost": 10});
    spile
        .check(question())
        .await
        .is(200)
        .carries("x-ratelimit-limit", "10")
        .carries("x-ratelimit-remaining", "0")
        .carries("x-ratelimit-reset", "1800000010")
        .carries("ratelimit-policy", "\"free\";q=10;w=10")
        .carries("ratelimit", "\"free\";r=0;t=10")
        .lacks("retry-after")
        .lacks("x-ratelimit-degraded");
    spile.advance(Duration::from_millis(500));
    spile
        .check(question())
        .await
        .is(429)
        .carries("retry-after", "10")
        .carries("ratelimit", "\"free\";r=0;t=10")
        .carries("cache-control", "no-store");
}

async fn plans_are_a_chain_that_is_spent_whole_or_not_at_all(spile: Spile) {
    let both = |cost| json!({"identity": "user:123", "plans": ["free", "pro"], "cost": cost});
    spile
        .check(both(8))
        .await
        .is(200)
        .says("/limit", 10)
        .says("/remaining", 2)
        .says("/limits/1/name", "pro")
        .says("/limits/1/remaining", 92)
        .carries("ratelimit-policy", "\"free\";q=10;w=10, \"pro\";q=100;w=2")
        .carries("ratelimit", "\"free\";r=2;t=8, \"pro\";r=92;t=1");
    spile
        .check(both(3))
        .await
        .is(429)
        .says("/limitedBy", "free")
        .says("/limits/1/remaining", 92)
        .carries("ratelimit", "\"free\";r=2;t=1, \"pro\";r=92");
}

async fn a_cost_may_be_a_part_of_a_token(spile: Spile) {
    let question = |cost: f64| json!({"ruleId": "default", "identity": "user:123", "cost": cost});
    spile.check(question(0.5)).await.is(200).says("/remaining", 9);
    spile.check(question(0.5)).await.is(200).says("/remaining", 9).says("/resetAfterMs", 1000);
    spile.check(question(9.000_001)).await.is(429).says("/remaining", 9).says("/retryAfterMs", 1);
    let own = |cost: f64| json!({"ruleId": "x", "identity": "y", "capacity": 2.5, "refillPerSecond": 0.25, "cost": cost});
    spile.check(own(1.5)).await.is(200).says("/limit", 2.5).says("/remaining", 1);
    spile.post("/v1/charge", own(1.25).to_string()).await.is(200).says("/uncovered", 0);
    spile.post("/v1/charge", own(2.5).to_string()).await.is(200).says("/uncovered", 0.25);
    let seventh = question(0.000_000_1);
    spile.check(seventh).await.is(400).says("/field", "cost");
}

async fn a_caller_may_bring_its_own_limit(spile: Spile) {
    let question = || json!({"ruleId": "x", "identity": "y", "capacity": 2, "refillPerSecond": 0.5});
    spile.check(question()).await.is(200).says("/limits/0/name", "x").says("/remaining", 1);
    spile.check(question()).await.is(200);
    spile.check(question()).await.is(429).says("/retryAfterMs", 2000).says("/limitedBy", "x");
}

async fn a_limit_of_ones_own_never_spends_from_a_plan_of_that_name(spile: Spile) {
    spile
        .check(json!({"ruleId": "free", "identity": "y", "capacity": 5, "refillPerSecond": 1, "cost": 5}))
        .await
        .is(200)
        .says("/limits/0/name", "own/free");
    spile.peek(json!({"identity": "y", "plans": ["free"]})).await.is(200).says("/remaining", 10);
}

async fn looking_spends_nothing(spile: Spile) {
    let question = || json!({"ruleId": "default", "identity": "user:123"});
    let free = || json!({"ruleId": "default", "identity": "user:123", "cost": 0});
    spile.peek(question()).await.is(200).says("/remaining", 10);
    spile.check(free()).await.is(200).says("/remaining", 10);
    spile.check(json!({"ruleId": "default", "identity": "user:123", "cost": 10})).await.is(200);
    spile.peek(question()).await.is(200).says("/allowed", false).says("/retryAfterMs", 1000);
    spile.check(free()).await.is(429).says("/remaining", 0).says("/retryAfterMs", 1000);
}

async fn a_refund_gives_back_what_was_spent_and_no_more(spile: Spile) {
    let question = |cost| json!({"ruleId": "default", "identity": "user:123", "cost": cost});
    spile.check(question(4)).await.is(200).says("/remaining", 6);
    spile.refund(question(3)).await.is(200).says("/remaining", 9);
    spile.refund(question(3)).await.is(200).says("/remaining", 10);
}

async fn a_refund_with_an_id_is_given_once_and_says_so(spile: Spile) {
    let question = |cost| json!({"ruleId": "default", "identity": "user:123", "cost": cost});
    let refund = |id: &str| json!({"ruleId": "default", "identity": "user:123", "cost": 3, "id": id});
    spile.check(question(8)).await.is(200).says("/remaining", 2);
    spile.refund(refund("order 7")).await.is(200).says("/refunded", true).says("/remaining", 5);
    spile.refund(refund("order 7")).await.is(200).says("/refunded", false).says("/remaining", 5);
    spile.refund(refund("order 8")).await.is(200).says("/refunded", true).says("/remaining", 8);
    spile.refund(question(1)).await.is(200).says("/refunded", true).says("/remaining", 9);
}

async fn a_batch_answers_each_question_in_order(spile: Spile) {
    let question = |who: &str, cost| json!({"ruleId": "default", "identity": who, "cost": cost});
    let questions = json!([question("a", 10), question("b", 1), question("a", 1)]);
    let answers = spile.batch(questions).await.is(200).json();
    let allowed = |index: usize| answers[index]["allowed"].clone();
    assert_eq!([allowed(0), allowed(1), allowed(2)], [json!(true), json!(true), json!(false)]);
    assert_eq!(answers.as_array().map(Vec::len), Some(3));
}

async fn one_bad_question_keeps_a_whole_batch_from_being_charged(spile: Spile) {
    let good = || json!({"ruleId": "default", "identity": "a"});
    let bad = json!({"ruleId": "default", "identity": "a", "cost": 11});
    spile.batch(json!([good(), good(), good(), bad])).await.is(400).says("/field", "[3].cost");
    spile.peek(good()).await.says("/remaining", 10);
}

async fn a_batch_takes_one_to_a_thousand_questions(spile: Spile) {
    spile.batch(json!([])).await.is(400).says("/field", "body");
    let questions = |count: usize| {
        let question = |index: usize| json!({"plans": ["enterprise"], "identity": index.to_string()});
        Value::Array((0..count).map(question).collect())
    };
    let answers = spile.batch(questions(1_000)).await.is(200).json();
    assert_eq!(answers.as_array().map(Vec::len), Some(1_000));
    let refused = spile.batch(questions(1_001)).await.is(400).says("/field", "body");
    assert!(refused.text.contains("1 to 1000"), "{}", refused.text);
    // A list of very many is counted, and not held.
    let many = format!("[{}]", vec!["{}"; 1_000_000].join(","));
    let refused = spile.post("/v1/check/batch", many).await.is(400).says("/field", "body");
    assert!(refused.text.contains("holds 1000000 questions"), "{}", refused.text);
}

async fn the_largest_batch_of_legal_questions_is_answered(spile: Spile) {
    // Escapes as some writers of JSON make them: six bytes for each character, which are three for each byte.
    let question = |index: usize| {
        let identity = format!("{index:04}{}", "\\u00e9".repeat(510));
        let plans = vec![r#""enterprise""#; 32].join(", ");
        format!(r#"{{ "identity": "principal:{identity}", "plans": [{plans}], "cost": 1 }}"#)
    };
    let questions: Vec<String> = (0..1_000).map(question).collect();
    let answers = spile.post("/v1/check/batch", format!("[{}]", questions.join(", "))).await.is(200).json();
    assert!(answers.as_array().is_some_and(|answers| answers.len() == 1_000));
    let spaced = format!("[{}]", " ".repeat(6 << 20));
    spile.post("/v1/check/batch", spaced).await.is(413).says("/field", "body");
}
