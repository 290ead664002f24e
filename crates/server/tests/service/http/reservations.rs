//! Costs that are known later: `/v1/reserve`, `/v1/settle` and `/v1/charge`, on either store.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use spile_server::{Config, StoreUrl};

use crate::support::{Answer, Office, Spile, on_both_stores};

on_both_stores! {
    a_reservation_is_charged_at_once_and_settled_once,
    a_reservation_that_cost_more_is_charged_into_debt,
    a_cancelled_reservation_costs_nothing,
    a_reservation_that_is_not_settled_in_time_stays_charged,
    each_limit_is_settled_at_a_cost_of_its_own,
    an_id_that_was_changed_is_unknown,
    a_refund_returns_to_the_window_of_the_decision_that_it_names,
    a_reservation_by_plans_and_by_an_own_limit_is_settled_too,
    what_was_used_is_charged_into_debt_and_told_if_it_is_beyond,
    a_reservation_or_a_charge_that_is_wrong_costs_nothing,
}

fn question(cost: u64) -> Value {
    json!({"ruleId": "default", "identity": "user:123", "cost": cost})
}

async fn left(spile: &Spile) -> u64 {
    spile.peek(question(0)).await.json()["remaining"].as_u64().expect("a number")
}

/// Reserves so many tokens for a minute, and returns the id.
async fn reserve(spile: &Spile, cost: u64) -> String {
    let body = json!({"ruleId": "default", "identity": "user:123", "cost": cost, "ttl": 60});
    let reserved = spile.post("/v1/reserve", body.to_string()).await.is(200).says("/allowed", true);
    reserved.json()["id"].as_str().expect("an id").to_owned()
}

async fn settle(spile: &Spile, id: &str, cost: u64) -> Answer {
    spile.post("/v1/settle", json!({"id": id, "cost": cost}).to_string()).await
}

async fn a_reservation_is_charged_at_once_and_settled_once(spile: Spile) {
    let id = reserve(&spile, 8).await;
    assert_eq!(left(&spile).await, 2);
    let body = question(8).to_string();
    let denied =
        spile.post("/v1/reserve", body).await.is(429).says("/id", Value::Null).says("/limitedBy", "free");
    assert!(denied.header("retry-after").is_some());
    let settled = settle(&spile, &id, 3).await.is(200).says("/settled", true).says("/uncovered", 0);
    settled.says("/costs/free", 3).says("/remaining", 7);
    for cost in [0, 3, 9] {
        let again = settle(&spile, &id, cost).await.is(200).says("/settled", false);
        again.says("/costs/free", 3).says("/remaining", 7);
    }
}

async fn a_reservation_that_cost_more_is_charged_into_debt(spile: Spile) {
    let id = reserve(&spile, 8).await;
    settle(&spile, &id, 15).await.is(200).says("/settled", true).says("/uncovered", 0).says("/remaining", 0);
    spile.check(question(0)).await.is(429);
    spile.advance(Duration::from_secs(5));
    spile.check(question(1)).await.is(429).says("/retryAfterMs", 1000);
    spile.advance(Duration::from_secs(1));
    spile.check(question(1)).await.is(200);
}

async fn a_cancelled_reservation_costs_nothing(spile: Spile) {
    let id = reserve(&spile, 10).await;
    settle(&spile, &id, 0).await.is(200).says("/settled", true).says("/remaining", 10);
}

async fn a_reservation_that_is_not_settled_in_time_stays_charged(spile: Spile) {
    let body = json!({"plans": ["enterprise"], "identity": "user:123", "cost": 100, "ttl": "1s"});
    let reserved = spile.post("/v1/reserve", body.to_string()).await.is(200).json();
    spile.advance(Duration::from_secs(1));
    let id = reserved["id"].as_str().expect("an id");
    // 200 tokens a second come back, so 100 that stayed charged show only in what was not given back on top.
    let body = json!({"plans": ["enterprise"], "identity": "user:123", "cost": 500}).to_string();
    spile.post("/v1/check", body).await.is(200);
    settle(&spile, id, 0).await.is(410).says("/field", "id").says("/settled", false);
    let left = json!({"plans": ["enterprise"], "identity": "user:123", "cost": 0});
    spile.peek(left).await.says("/remaining", 0);
    spile.advance(Duration::from_secs(3_600));
    settle(&spile, id, 0).await.is(404).says("/field", "id").says("/settled", false);
}

async fn each_limit_is_settled_at_a_cost_of_its_own(spile: Spile) {
    let settle = async |body: Value| spile.post("/v1/settle", body.to_string()).await;
    let id = reserve_of(&spile, "a", 8).await;
    for costs in [json!({"gold": 1}), json!({"free": -1}), json!({"free": 1_000_000_001}), json!([1])] {
        let refused = settle(json!({"id": id, "cost": 1, "costs": costs})).await.is(400);
        assert!(refused.json()["field"].as_str().expect("a field").starts_with("costs"), "{}", refused.text);
    }
    let wrong = settle(json!({"id": id, "costs": {"gold": 1}})).await.is(400).text;
    assert!(
        wrong.contains("has `gold`, which is no limit of the reservation; it has `free`, `pro`"),
        "{wrong}"
    );
    let settled = settle(json!({"id": id, "cost": 3, "costs": {"pro": 20.5}})).await.is(200);
    settled
        .says("/costs/free", 3)
        .says("/costs/pro", 20.5)
        .says("/limits/0/remaining", 7)
        .says("/limits/1/remaining", 79);
    // A limit that is not named keeps what was reserved.
    let id = reserve_of(&spile, "b", 8).await;
    let settled = settle(json!({"id": id, "costs": {"pro": 0}})).await.is(200);
    settled.says("/costs/free", 8).says("/limits/0/remaining", 2).says("/limits/1/remaining", 100);
}

async fn reserve_of(spile: &Spile, identity: &str, cost: u64) -> String {
    let body = json!({"plans": ["free", "pro"], "identity": identity, "cost": cost}).to_string();
    spile.post("/v1/reserve", body).await.is(200).json()["id"].as_str().expect("an id").to_owned()
}

/// The id of a reservation with one text in the place of another.
fn edited(id: &str, from: &str, to: &str) -> String {
    let json = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(id).expect("base64")).expect("text");
    assert!(json.contains(from), "{from} in {json}");
    BASE64_URL_SAFE_NO_PAD.encode(json.replacen(from, to, 1))
}

async fn an_id_that_was_changed_is_unknown(spile: Spile) {
    let id = reserve(&spile, 8).await;
    let edits = [
        ("\"cost\":8", "\"cost\":10"),
        ("\"cost\":8", "\"cost\":8,\"fixed\":true"),
        ("user:123", "user:124"),
        ("\"name\":\"free\"", "\"name\":\"pro\""),
        ("\"1/s\"", "\"9/s\""),
        ("\"ttl_us\":60000000", "\"ttl_us\":61000000"),
        ("\"random\":\"", "\"random\":\"A"),
    ];
    for (from, to) in edits {
        settle(&spile, &edited(&id, from, to), 0).await.is(404).says("/field", "id").says("/settled", false);
    }
    // Not more charges than a chain has, nor more names of plans.
    let json = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(&id).expect("base64")).expect("text");
    let mut many: Value = serde_json::from_str(&json).expect("JSON");
    let bucket = many["charges"]["buckets"][0].clone();
    many["charges"]["buckets"] = vec![bucket; 33].into();
    settle(&spile, &BASE64_URL_SAFE_NO_PAD.encode(many.to_string()), 0).await.is(400).says("/field", "id");
    let named = json!({"plans": vec!["free"; 33], "identity": "a"}).to_string();
    spile.post("/v1/reserve", named).await.is(400).says("/field", "plans");
    assert_eq!(left(&spile).await, 2, "nothing was given back");
    settle(&spile, &id, 8).await.is(200).says("/settled", true);
}

async fn a_refund_returns_to_the_window_of_the_decision_that_it_names(spile: Spile) {
    let question = |cost: u64| json!({"plans": ["free"], "identity": "a", "cost": cost});
    let spent = spile.check(question(4)).await.is(200).json();
    assert_eq!(spent["at"], 1_800_000_000_000_000_u64);
    spile.check(question(0)).await.is(200).says("/at", Value::Null);
    spile.peek(question(1)).await.is(200).says("/at", Value::Null);
    spile.check(question(9)).await.is(429).says("/at", Value::Null);
    let mut refund = question(1);
    refund["at"] = spent["at"].clone();
    spile.refund(refund.clone()).await.is(200).says("/remaining", 7).says("/at", Value::Null);
    refund["at"] = Value::Null;
    spile.refund(refund.clone()).await.is(200).says("/remaining", 8);
    for at in [json!(-1), json!(1.5), json!("now")] {
        refund["at"] = at;
        spile.refund(refund.clone()).await.is(400).says("/field", "at");
    }
}

async fn a_reservation_by_plans_and_by_an_own_limit_is_settled_too(spile: Spile) {
    for body in [
        json!({"plans": ["free", "pro"], "identity": "a", "cost": 4, "ttl": "90s"}),
        json!({"ruleId": "own", "identity": "a\u{7e}\u{e9}", "capacity": 10, "refillPerSecond": 0.5, "cost": 4}),
    ] {
        let reserved = spile.post("/v1/reserve", body.to_string()).await.is(200).says("/remaining", 6).json();
        let id = reserved["id"].as_str().expect("an id");
        settle(&spile, id, 1).await.is(200).says("/settled", true).says("/remaining", 9);
    }
}

async fn what_was_used_is_charged_into_debt_and_told_if_it_is_beyond(spile: Spile) {
    let charge = async |cost: u64| spile.post("/v1/charge", question(cost).to_string()).await.is(200);
    charge(4).await.says("/uncovered", 0).says("/remaining", 6).says("/allowed", true);
    charge(14).await.says("/uncovered", 0).says("/remaining", 0);
    spile.check(question(1)).await.is(429).says("/retryAfterMs", 9000);
    charge(5).await.says("/uncovered", 3);
    charge(1_000_000_000).await.says("/uncovered", 1_000_000_000);
    spile.check(question(1)).await.is(429).says("/retryAfterMs", 11000);
    let by_rule = json!({"ruleId": "default", "identity": "user:9"}).to_string();
    spile.post("/v1/charge", by_rule).await.is(200).says("/remaining", 9);
}

async fn a_reservation_or_a_charge_that_is_wrong_costs_nothing(spile: Spile) {
    let with = |name: &str, value: Value| {
        let mut body = question(4);
        body[name] = value;
        body.to_string()
    };
    for ttl in [json!(0), json!(0.5), json!(86_401), json!("2 days"), json!(-1), json!("soon"), json!([1])] {
        let refused = spile.post("/v1/reserve", with("ttl", ttl)).await.is(400).says("/field", "ttl");
        assert!(refused.text.contains("1 second to 1 day"), "{}", refused.text);
    }
    spile.post("/v1/reserve", with("cost", json!(11))).await.is(400).says("/field", "cost");
    spile.post("/v1/reserve", with("id", json!("x"))).await.is(400).says("/field", "id");
    spile.post("/v1/charge", with("ttl", json!("1s"))).await.is(400).says("/field", "ttl");
    spile.post("/v1/charge", with("cost", json!(1_000_000_001))).await.is(400).says("/field", "cost");
    for id in ["", "x", "eyJhIjoxfQ", "!!", "bnVsbA"] {
        settle(&spile, id, 1).await.is(400).says("/field", "id");
    }
    spile.post("/v1/settle", json!({"cost": 1}).to_string()).await.is(400).says("/field", "id");
    let id = reserve(&spile, 1).await;
    spile.post("/v1/settle", json!({"id": id}).to_string()).await.is(400).says("/field", "cost");
    spile.post("/v1/settle", json!({"id": id, "cost": -1}).to_string()).await.is(400).says("/field", "cost");
    assert_eq!(left(&spile).await, 9, "only what was reserved is charged");
}

const CHANGING: &str = r#"
[plans]
free = { capacity = 100, refill = "1/h" }
[plans.gold]
limits = [{ name = "tokens", capacity = 100, refill = "1/h" }, { name = "month", quota = 100, per = "month" }]
[[rules]]
id = "model"
cost = 40
plans = ["gold"]
"#;

/// The remaining tokens of a key under the limits of the plan, if they are as they were.
async fn left_of_gold(office: &Office) -> Value {
    let question = json!({"plans": ["gold"], "identity": "a", "cost": 0});
    let answer = office.spile.peek(question).await.is(200).json();
    json!([answer["limits"][0]["remaining"], answer["limits"][1]["remaining"]])
}

#[tokio::test]
async fn a_reservation_is_settled_by_what_it_charged_whatever_changed_in_between() {
    let gold = "limits = [{ name = \"tokens\", capacity = 100, refill = \"1/h\" }, { name = \"month\", quota = 100, per = \"month\" }]";
    let changes = [
        ("cost = 40", "cost = 1"),
        ("plans = [\"gold\"]", "plans = [\"free\"]"),
        ("[[rules]]\nid = \"model\"", "[[rules]]\nid = \"other\""),
        // The plan is gone, or its limits have other shapes.
        (gold, "limits = [{ name = \"other\", capacity = 50, refill = \"1/h\" }]"),
        (
            gold,
            "limits = [{ name = \"tokens\", quota = 70, per = \"day\" }, { name = \"month\", concurrency = 3 }]",
        ),
        // Much faster: what the time in between is worth is not minted.
        ("refill = \"1/h\" }, {", "refill = \"1000/s\" }, {"),
    ];
    for (from, to) in changes {
        let office = Office::open_with(CHANGING).await;
        let body = json!({"ruleId": "model", "identity": "a"}).to_string();
        let reserved = office.spile.post("/v1/reserve", body).await.is(200).json();
        assert_eq!(left_of_gold(&office).await, json!([60, 60]));
        office.reload_with(from, to).await.is(200);
        let id = reserved["id"].as_str().expect("an id");
        let settled = settle(&office.spile, id, 10).await.is(200).says("/settled", true);
        settled.says("/costs/gold~1tokens", 10).says("/costs/gold~1month", 10);
        settle(&office.spile, id, 0).await.is(200).says("/settled", false).says("/costs/gold~1tokens", 10);
        office.reload_with(to, from).await.is(200);
        assert_eq!(left_of_gold(&office).await, json!([90, 90]), "{from} → {to}");
    }
}

#[tokio::test]
async fn a_rate_that_was_made_slower_gains_nothing_although_the_question_leads_elsewhere() {
    let slow = "[plans]\nslow = { capacity = 100, refill = \"20/s\" }\nfree = { capacity = 9, refill = \"1/s\" }\n\
                [[rules]]\nid = \"slow\"\nplans = [\"slow\"]\n";
    let office = Office::open_with(slow).await;
    let body = json!({"ruleId": "slow", "identity": "a", "cost": 95}).to_string();
    let reserved = office.spile.post("/v1/reserve", body).await.is(200).json();
    office.reload_with("20/s\" }", "1/h\" }").await.is(200);
    office.reload_with("plans = [\"slow\"]", "plans = [\"free\"]").await.is(200);
    office.spile.advance(Duration::from_secs(60));
    let id = reserved["id"].as_str().expect("an id");
    settle(&office.spile, id, 94).await.is(200).says("/settled", true);
    let left = json!({"plans": ["slow"], "identity": "a", "cost": 0});
    office.spile.peek(left).await.says("/remaining", 6);
}

#[tokio::test]
async fn a_reservation_that_charged_nothing_is_settled_by_doing_nothing() {
    let file = format!("{CHANGING}mode = \"shadow\"\n");
    let office = Office::open_with(&file.replace("cost = 40", "cost = 60")).await;
    let body = json!({"ruleId": "model", "identity": "a"}).to_string();
    for settled in [true, false] {
        let reserved =
            office.spile.post("/v1/reserve", body.clone()).await.is(200).says("/allowed", true).json();
        let id = reserved["id"].as_str().expect("an id");
        settle(&office.spile, id, 70).await.is(200).says("/settled", settled);
    }
}

#[tokio::test]
async fn a_refusal_that_may_have_charged_can_be_settled() {
    let mut spile = Spile::start_on_redis().await;
    let mut config = Config::default();
    config.store.url = StoreUrl::Redis(spile.redis().url());
    config.store.timeout = Duration::from_millis(200);
    config.store.on_failure = spile_core::FailurePolicy::Deny;
    let denying = Spile::start_with(config).await;
    while denying.peek(question(0)).await.json()["degraded"] != false {}
    spile.redis().freeze();
    let refused = denying.post("/v1/reserve", question(8).to_string()).await.is(503).json();
    spile.redis().thaw();
    // Another connection: what was sent before must have run.
    while left(&spile).await == 10 {}
    let id = refused["id"].as_str().expect("an id");
    settle(&spile, id, 0).await.is(200);
    assert_eq!(left(&spile).await, 10);
}

#[tokio::test]
async fn a_reservation_does_not_pay_back_what_its_rule_fixes() {
    let file = CHANGING.replace("plans = [\"gold\"]", "plans = [\"gold\"]\nalso = [\"requests\"]");
    let file =
        format!("{file}\n[[rules]]\nid = \"requests\"\nplans = [\"free\"]\ncost = 1\nfixed_cost = true\n");
    let office = Office::open_with(&file).await;
    let body = json!({"ruleId": "model", "identity": "a"}).to_string();
    let reserved = office.spile.post("/v1/reserve", body).await.is(200).json();
    let id = reserved["id"].as_str().expect("an id");
    let settled = settle(&office.spile, id, 10).await.is(200);
    settled.says("/costs/free", 1).says("/costs/gold~1tokens", 10);
}

#[tokio::test]
async fn a_permit_is_renewed_and_released_whatever_its_plan_is_by_then() {
    let jobs = "limits = [{ name = \"atonce\", concurrency = 1 }, { name = \"rate\", capacity = 10, refill = \"1/h\" }]";
    let file = format!("[plans.jobs]\n{jobs}\n");
    for to in [
        "limits = [{ name = \"atonce\", capacity = 5, refill = \"1/h\" }]",
        "limits = [{ name = \"rate\", capacity = 5, refill = \"1/h\" }]",
        "capacity = 5\nrefill = \"1/h\"",
    ] {
        let office = Office::open_with(&file).await;
        let acquire = async || {
            let body = json!({"plans": ["jobs"], "identity": "a"}).to_string();
            office.spile.post("/v1/acquire", body).await
        };
        let permit = acquire().await.is(200).json()["permit"].clone();
        acquire().await.is(429);
        office.reload_with(jobs, to).await.is(200);
        let body = json!({"permit": permit}).to_string();
        office.spile.post("/v1/renew", body.clone()).await.is(200).says("/holdMs", 30_000);
        office.spile.post("/v1/release", body.clone()).await.is(200).says("/released", true);
        office.spile.post("/v1/release", body).await.is(200).says("/released", false);
        office.reload_with(to, jobs).await.is(200);
        acquire().await.is(200);
    }
}

#[tokio::test]
async fn a_reservation_is_settled_by_any_instance_and_once_by_all() {
    let mut first = Spile::start_on_redis().await;
    let mut config = Config::default();
    config.store.url = StoreUrl::Redis(first.redis().url());
    config.store.timeout = Duration::from_secs(5);
    let second = Spile::start_with(config).await;
    for _ in 0..20 {
        let id = reserve(&first, 10).await;
        let asked = [&first, &second, &first, &second].map(|spile| settle(spile, &id, 0));
        let answers = futures_util::future::join_all(asked).await;
        let settled = answers.into_iter().filter(|answer| answer.json()["settled"] == true).count();
        assert_eq!(settled, 1);
        assert_eq!((left(&first).await, left(&second).await), (10, 10));
    }
}

#[tokio::test]
async fn a_store_that_is_away_says_whether_to_send_it_again() {
    let mut spile = Spile::start_on_redis().await;
    let id = reserve(&spile, 8).await;
    spile.redis().kill();
    settle(&spile, &id, 0).await.is(503).carries("retry-after", "1");
    spile.post("/v1/charge", question(1).to_string()).await.is(503).carries("retry-after", "1");
    let passed = spile.post("/v1/reserve", question(1).to_string()).await.is(200).says("/degraded", true);
    assert!(passed.json()["id"].is_string());
}
