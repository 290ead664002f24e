//! What has been used is charged late, alternatives, and rules that replace others.

use std::time::Duration;

use serde_json::json;
use spile_server::StoreUrl;
use spile_testkit::redis::RedisServer;

use super::client::{Client, OK, OVER_LIMIT, Request, Wrapped};
use super::{RULES, client, config};
use crate::support::Spile;

const BUDGETS: &str = r#"
[plans.nine]
capacity = 9
refill = "9/min"

[plans.one]
capacity = 1
refill = "1/min"

[plans.two]
capacity = 2
refill = "2/min"

[[rules]]
id = "tokens"
match = { domain = "ai", entries = ["user"] }
plans = ["nine"]
late = true

[[rules]]
id = "watched"
match = { domain = "ai", entries = ["watched"] }
plans = ["nine"]
late = true
mode = "shadow"

[[rules]]
id = "client"
match = { domain = "ai", entries = ["address"] }
plans = ["two"]

[[rules]]
id = "first"
match = { domain = "ai", entries = ["service=1"] }
plans = ["one"]
mode = "any"

[[rules]]
id = "second"
match = { domain = "ai", entries = ["service=2"] }
plans = ["two"]
mode = "any"

[[rules]]
id = "model-one"
match = { domain = "ai", entries = ["model=1"] }
plans = ["one"]
mode = "any"
late = true

[[rules]]
id = "model-two"
match = { domain = "ai", entries = ["model=2"] }
plans = ["two"]
mode = "any"
late = true

[[rules]]
id = "admin"
match = { domain = "ai", entries = ["admin"] }
plans = ["nine"]
replaces = ["client"]
"#;

async fn start() -> Spile {
    Spile::start_with(config(&format!("{RULES}{BUDGETS}"))).await
}

async fn start_on(redis: &RedisServer) -> Spile {
    let mut config = config(&format!("{RULES}{BUDGETS}"));
    config.store.url = StoreUrl::Redis(redis.url());
    config.store.timeout = Duration::from_secs(5);
    Spile::start_with(config).await
}

fn ai(descriptors: &[&[(&str, &str)]]) -> Request {
    Request::new("ai", descriptors)
}

/// The same with so many hits of the last descriptor's own.
fn hits(request: Request, hits: u64) -> Request {
    request.with(|descriptor| descriptor.hits_addend = Some(Wrapped { value: hits }))
}

const ANN: &[(&str, &str)] = &[("user", "ann")];

/// Whether a request of Ann's passes, as Envoy asks before it: without hits.
async fn passes(client: &Client) -> bool {
    client.ask(hits(ai(&[ANN]), 0)).await.overall_code == OK
}

/// Tells what her request has cost, as Envoy does when it is done.
async fn used(client: &Client, tokens: u64) -> (i32, u32) {
    let done = client.ask(hits(ai(&[ANN]), tokens)).await;
    (done.overall_code, done.statuses[0].limit_remaining)
}

#[tokio::test]
async fn a_budget_of_nine_is_used_up_by_three_requests_of_three_in_memory() {
    a_budget_of_nine_is_used_up_by_three_requests_of_three(&start().await).await;
}

#[tokio::test]
async fn a_budget_of_nine_is_used_up_by_three_requests_of_three_on_redis() {
    let redis = RedisServer::start();
    a_budget_of_nine_is_used_up_by_three_requests_of_three(&start_on(&redis).await).await;
}

async fn a_budget_of_nine_is_used_up_by_three_requests_of_three(spile: &Spile) {
    let client = client(spile).await;
    for left in [6, 3, 0] {
        assert!(passes(&client).await, "{left}");
        assert_eq!(used(&client, 3).await, (OK, left));
    }
    for _ in 0..20 {
        assert!(!passes(&client).await);
    }
    let metrics = spile.admin("/metrics").await.text;
    let denied = metrics.lines().find(|line| {
        line.starts_with("ratelimit_decisions_total{rule=\"tokens\"") && line.contains("outcome=\"denied\"")
    });
    assert!(denied.is_some(), "questions without hits are counted: {metrics}");
}

#[tokio::test]
async fn what_was_used_beyond_the_budget_is_owed_until_the_refill_has_repaid_it() {
    let spile = start().await;
    let client = client(&spile).await;
    assert_eq!(used(&client, 8).await, (OK, 1));
    assert!(passes(&client).await, "one is left");
    // Nine a minute: 4 are owed, and one more is wanted.
    assert_eq!(used(&client, 5).await, (OVER_LIMIT, 0));
    assert!(!passes(&client).await);
    spile.advance(Duration::from_secs(33));
    assert!(!passes(&client).await);
    spile.advance(Duration::from_secs(1));
    assert!(passes(&client).await);
    // Far more than the limit can hold is owed down to its debt, and no further.
    used(&client, 1_000_000).await;
    spile.advance(Duration::from_secs(66));
    assert!(!passes(&client).await);
    spile.advance(Duration::from_secs(1));
    assert!(passes(&client).await);
}

#[tokio::test]
async fn what_has_been_used_is_charged_whatever_becomes_of_the_rest_and_watched_rules_never_block() {
    let spile = start().await;
    let client = client(&spile).await;
    let both = || ai(&[ANN, &[("address", "::1")]]).hits(1);
    for left in [8, 7] {
        assert_eq!(client.ask(both()).await.told(), (OK, vec![(OK, left), (OK, left - 7)]));
    }
    assert_eq!(client.ask(both()).await.told(), (OVER_LIMIT, vec![(OK, 6), (OVER_LIMIT, 0)]));

    let watched = |count| hits(ai(&[&[("watched", "ann")]]), count);
    assert_eq!(client.ask(watched(30)).await.told(), (OK, vec![(OK, 0)]));
    assert_eq!(client.ask(watched(0)).await.overall_code, OK);
}

#[tokio::test]
async fn a_question_without_hits_denies_the_others_and_charges_none() {
    let spile = start().await;
    let client = client(&spile).await;
    used(&client, 9).await;
    let asked = || {
        let asked = ai(&[&[("address", "::1")], ANN]);
        hits(asked, 0)
    };
    assert_eq!(client.ask(asked()).await.told(), (OVER_LIMIT, vec![(OK, 2), (OVER_LIMIT, 0)]));
    spile.advance(Duration::from_secs(7));
    assert_eq!(client.ask(asked()).await.told(), (OK, vec![(OK, 1), (OK, 1)]));
}

#[tokio::test]
async fn one_alternative_that_passes_is_enough() {
    let spile = start().await;
    let client = client(&spile).await;
    let services = || ai(&[&[("service", "1")], &[("service", "2")]]);
    assert_eq!(client.ask(services()).await.told(), (OK, vec![(OK, 0), (OK, 1)]));
    let second = client.ask(services()).await;
    assert_eq!(second.told(), (OK, vec![(OVER_LIMIT, 0), (OK, 0)]));
    assert_eq!(second.violations(), Some(vec![0.0]));
    let neither = client.ask(services()).await;
    assert_eq!(neither.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 0), (OVER_LIMIT, 0)]));
    assert_eq!(neither.violations(), Some(vec![0.0, 1.0]));
    assert_eq!(neither.header("retry-after"), Some("30"), "the one that passes first");
    assert_eq!(client.ask(ai(&[&[("address", "::1")]])).await.violations(), None);
}

#[tokio::test]
async fn the_budget_of_the_service_that_answered_is_charged_and_the_others_take_over() {
    let spile = start().await;
    let client = client(&spile).await;
    let ask = async || {
        let mut both = ai(&[&[("model", "1")], &[("model", "2")]]);
        both.descriptors
            .iter_mut()
            .for_each(|descriptor| descriptor.hits_addend = Some(Wrapped { value: 0 }));
        let asked = client.ask(both).await;
        (asked.overall_code, asked.violations().expect("alternatives"))
    };
    let answered_by = async |model: &str, tokens| client.ask(hits(ai(&[&[("model", model)]]), tokens)).await;
    assert_eq!(ask().await, (OK, vec![]));
    answered_by("1", 3).await;
    assert_eq!(ask().await, (OK, vec![0.0]));
    answered_by("2", 2).await;
    assert_eq!(ask().await, (OVER_LIMIT, vec![0.0, 1.0]));
    spile.advance(Duration::from_secs(30));
    assert_eq!(ask().await, (OK, vec![0.0]), "the first still owes");
}

#[tokio::test]
async fn a_request_that_is_denied_pays_neither_for_alternatives_nor_for_the_rest_in_memory() {
    a_request_that_is_denied_pays_neither_for_alternatives_nor_for_the_rest(&start().await).await;
}

#[tokio::test]
async fn a_request_that_is_denied_pays_neither_for_alternatives_nor_for_the_rest_on_redis() {
    let redis = RedisServer::start();
    let spile = start_on(&redis).await;
    a_request_that_is_denied_pays_neither_for_alternatives_nor_for_the_rest(&spile).await;
}

async fn a_request_that_is_denied_pays_neither_for_alternatives_nor_for_the_rest(spile: &Spile) {
    let client = client(spile).await;
    let address: &[(&str, &str)] = &[("address", "::1")];
    let left = async |identity: &str, plan: &str| {
        spile.peek(json!({"identity": identity, "plans": [plan]})).await.json()["remaining"].clone()
    };
    client.ask(ai(&[address]).hits(2)).await;
    let denied = client.ask(ai(&[address, &[("service", "1")], &[("service", "2")]])).await;
    assert_eq!(denied.overall_code, OVER_LIMIT);
    assert_eq!((left("ai|service=1", "one").await, left("ai|service=2", "two").await), (json!(1), json!(2)));

    let other: &[(&str, &str)] = &[("address", "::2")];
    client.ask(ai(&[&[("service", "1")]])).await;
    let denied = client.ask(ai(&[other, &[("service", "1")]])).await;
    assert_eq!(denied.told(), (OVER_LIMIT, vec![(OK, 0), (OVER_LIMIT, 0)]));
    assert_eq!(left("ai|address=::2", "two").await, json!(2));
}

#[tokio::test]
async fn a_rule_replaces_another_in_requests_that_it_applies_to() {
    let spile = start().await;
    let client = client(&spile).await;
    let (address, admin): (&[_], &[_]) = (&[("address", "::1")], &[("admin", "root")]);
    for left in (5..9).rev() {
        let told = client.ask(ai(&[address, admin])).await.told();
        assert_eq!(told, (OK, vec![(OK, 0), (OK, left)]));
    }
    assert_eq!(client.ask(ai(&[address])).await.told(), (OK, vec![(OK, 1)]));
}

#[tokio::test]
async fn header_fields_can_be_switched_off() {
    let text = format!("{RULES}{BUDGETS}").replace("[grpc]\n", "[grpc]\nrate_limit_headers = false\n");
    let spile = Spile::start_with(config(&text)).await;
    let client = client(&spile).await;
    let address = || ai(&[&[("address", "::1")]]);
    assert!(client.ask(address()).await.headers.is_empty());
    client.ask(address()).await;
    let denied = client.ask(address()).await;
    let names: Vec<_> = denied.headers.iter().map(|header| header.key.as_str()).collect();
    assert_eq!((denied.header("retry-after"), names.len()), (Some("30"), 2), "{names:?}");
}

#[test]
fn what_is_for_descriptors_alone_is_refused_elsewhere() {
    let wrong = |rule: &str| {
        let text = format!("[[rules]]\nid = \"a\"\nplans = [\"free\"]\n{rule}\n");
        let read = spile_server::Config::parse("spile.toml".as_ref(), text, []);
        read.err().map(|why| why.to_string()).unwrap_or_default()
    };
    assert!(wrong("late = true").contains("`late` is for descriptors"));
    assert!(wrong("mode = \"any\"").contains("the mode `any` is for descriptors"));
    assert!(wrong("replaces = [\"default\"]").contains("`replaces` is for descriptors"));
    let entries = "match = { domain = \"d\", entries = [\"k\"] }\n";
    assert!(wrong(&format!("{entries}replaces = [\"a\"]")).contains("a rule cannot name itself here"));
    assert!(wrong(&format!("{entries}replaces = [\"b\"]")).contains("no rule has the id `b`"));
}
