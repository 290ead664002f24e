//! Which rule, which bucket, how many tokens, and what is said of it.

use std::time::Duration;

use serde_json::json;
use spile_server::StoreUrl;
use spile_testkit::redis::RedisServer;
use tonic::Code;

use super::client::{OK, OVER_LIMIT, Rate, Request, Wrapped};
use super::{RULES, client, config, edge, start};
use crate::support::Spile;

#[tokio::test]
async fn a_rule_is_found_by_its_entries_and_each_value_has_a_bucket() {
    let spile = start().await;
    let client = client(&spile).await;
    let first = client.ask(edge(&[&[("remote_address", "1.2.3.4")]])).await;
    assert_eq!(first.told(), (OK, vec![(OK, 9)]));
    let limit = first.statuses[0].current_limit.clone().expect("a limit");
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit), ("ten", 1, 1));
    let reset = first.statuses[0].duration_until_reset.expect("a reset");
    assert_eq!((reset.seconds, reset.nanos), (1, 0));
    assert_eq!(client.ask(edge(&[&[("remote_address", "::1")]])).await.told(), (OK, vec![(OK, 9)]));
    // The same address under another rule and plan.
    let login = edge(&[&[("generic_key", "login"), ("remote_address", "1.2.3.4")]]);
    for left in (0..3).rev() {
        assert_eq!(client.ask(login.clone()).await.told(), (OK, vec![(OK, left)]));
    }
    let refused = client.ask(login.clone()).await;
    assert_eq!(refused.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
    assert_eq!(refused.statuses[0].duration_until_reset.expect("a wait").seconds, 20);
    assert_eq!(refused.header("retry-after"), Some("20"));
    assert_eq!(refused.header("x-ratelimit-limit"), Some("3"));
    assert!(refused.header("ratelimit").is_some_and(|field| field.contains("\"three\"")));
    spile.advance(Duration::from_secs(20));
    assert_eq!(client.ask(login).await.told(), (OK, vec![(OK, 0)]));
}

#[tokio::test]
async fn what_no_rule_is_for_passes_and_is_counted() {
    let spile = start().await;
    let client = client(&spile).await;
    let nothing = edge(&[&[("unheard", "of")], &[("remote_address", "1.2.3.4"), ("more", "entries")]]);
    let response = client.ask(nothing).await;
    assert_eq!(response.told(), (OK, vec![(OK, 0), (OK, 0)]));
    assert!(response.statuses.iter().all(|status| status.current_limit.is_none()));
    assert!(response.headers.is_empty());
    client.ask(Request::new("elsewhere", &[&[("remote_address", "1.2.3.4")]])).await;
    let metrics = spile.admin("/metrics").await.text;
    assert!(metrics.contains("ratelimit_unmatched_descriptors_total 3\n"), "{metrics}");
}

#[tokio::test]
async fn all_descriptors_are_charged_or_none_is_on_memory() {
    all_descriptors_are_charged_or_none_is(&start().await).await;
}

#[tokio::test]
async fn all_descriptors_are_charged_or_none_is_on_redis() {
    let redis = RedisServer::start();
    let mut config = config(RULES);
    config.store.url = StoreUrl::Redis(redis.url());
    config.store.timeout = Duration::from_secs(5);
    all_descriptors_are_charged_or_none_is(&Spile::start_with(config).await).await;
}

async fn all_descriptors_are_charged_or_none_is(spile: &Spile) {
    let client = client(spile).await;
    let address: &[(&str, &str)] = &[("remote_address", "1.2.3.4")];
    let login: &[(&str, &str)] = &[("generic_key", "login"), ("remote_address", "1.2.3.4")];
    let both = edge(&[address, &[("unheard", "of")], login]);
    for left in (0..3).rev() {
        let told = client.ask(both.clone()).await.told();
        assert_eq!(told, (OK, vec![(OK, left + 7), (OK, 0), (OK, left)]));
    }
    // The address would still pass; it is told so, and pays nothing.
    for _ in 0..3 {
        let told = client.ask(both.clone()).await.told();
        assert_eq!(told, (OVER_LIMIT, vec![(OK, 7), (OK, 0), (OVER_LIMIT, 0)]));
    }
    assert_eq!(client.ask(edge(&[address])).await.told(), (OK, vec![(OK, 6)]));
}

#[tokio::test]
async fn the_same_descriptor_twice_pays_twice() {
    let spile = start().await;
    let client = client(&spile).await;
    let address: &[(&str, &str)] = &[("remote_address", "1.2.3.4")];
    assert_eq!(client.ask(edge(&[address, address])).await.told(), (OK, vec![(OK, 8), (OK, 8)]));
}

#[tokio::test]
async fn hits_are_spent_looked_at_and_given_back() {
    let spile = start().await;
    let client = client(&spile).await;
    let address = edge(&[&[("remote_address", "1.2.3.4")]]);
    assert_eq!(client.ask(address.clone().hits(4)).await.told(), (OK, vec![(OK, 6)]));
    let own = |hits: u64, back: bool| {
        address.clone().hits(9).with(|descriptor| {
            descriptor.hits_addend = Some(Wrapped { value: hits });
            descriptor.is_negative_hits = back;
        })
    };
    assert_eq!(client.ask(own(0, false)).await.told(), (OK, vec![(OK, 6)]));
    assert_eq!(client.ask(own(2, false)).await.told(), (OK, vec![(OK, 4)]));
    assert_eq!(client.ask(own(3, true)).await.told(), (OK, vec![(OK, 7)]));
    assert_eq!(client.ask(own(1_000_000_000_000, true)).await.told(), (OK, vec![(OK, 10)]));
    // The rule's cost is what one hit costs, of the smaller limit of its chain.
    let api = edge(&[&[("path", "/api/users")]]);
    assert_eq!(client.ask(api.clone().hits(2)).await.told(), (OK, vec![(OK, 1)]));
    let refused = client.ask(api).await;
    assert_eq!(refused.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 1)]));
    assert_eq!(refused.statuses[0].current_limit.clone().expect("a limit").name, "gold/burst");
}

#[tokio::test]
async fn what_could_never_pass_is_over_the_limit_and_costs_nothing() {
    let spile = start().await;
    let client = client(&spile).await;
    let address: &[(&str, &str)] = &[("remote_address", "1.2.3.4")];
    let refused = client.ask(edge(&[address]).hits(11)).await;
    assert_eq!(refused.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 10)]));
    assert_eq!(refused.header("retry-after"), None);
    let most = edge(&[&[("remote_address", "::1")], address]).hits(u32::MAX);
    assert_eq!(client.ask(most).await.overall_code, OVER_LIMIT);
    assert_eq!(client.ask(edge(&[address])).await.told(), (OK, vec![(OK, 9)]));
}

#[tokio::test]
async fn a_rule_that_only_watches_never_blocks_and_never_spends_for_others() {
    let spile = start().await;
    let client = client(&spile).await;
    let office: &[(&str, &str)] = &[("remote_address", "10.0.0.1")];
    let login: &[(&str, &str)] = &[("generic_key", "login"), ("remote_address", "10.0.0.1")];
    for _ in 0..5 {
        assert_eq!(client.ask(edge(&[office])).await.overall_code, OK);
    }
    let told = client.ask(edge(&[office, login])).await.told();
    assert_eq!(told, (OK, vec![(OK, 4), (OK, 2)]), "the less specific rule that is enforced");
    let metrics = spile.admin("/metrics").await.text;
    let shadow = "ratelimit_decisions_total{rule=\"office\",limit=\"shadow:three\",outcome=\"shadow\"";
    assert!(metrics.lines().any(|line| line.starts_with(shadow) && line.ends_with(" 3")), "{metrics}");
}

#[tokio::test]
async fn a_tenant_pays_from_the_bucket_it_has_everywhere() {
    let spile = start().await;
    let client = client(&spile).await;
    assert_eq!(client.ask(edge(&[&[("tenant", "acme")]])).await.told(), (OK, vec![(OK, 4)]));
    spile.check(json!({"identity": "tenant:acme", "plans": ["ten"]})).await.is(200).says("/remaining", 8);
    let stranger = client.ask(edge(&[&[("tenant", "nobody")]])).await;
    assert_eq!(stranger.told(), (OK, vec![(OK, 2)]));
    assert_eq!(stranger.statuses[0].current_limit.clone().expect("a limit").name, "three");
    // The rule is charged with another, of which both have paid from one bucket.
    assert_eq!(client.ask(edge(&[&[("tenant", "acme")]])).await.told(), (OK, vec![(OK, 2)]));
}

#[tokio::test]
async fn values_are_callers_words_and_none_is_an_error() {
    let spile = start().await;
    let client = client(&spile).await;
    let long = "x".repeat(5_000);
    for value in ["", "a\u{200B}b", "line\nbreak", "|=%", "é", long.as_str()] {
        let told = client.ask(edge(&[&[("remote_address", value)]])).await.told();
        assert_eq!(told, (OK, vec![(OK, 9)]), "{value}");
        let again = client.ask(edge(&[&[("remote_address", value)]])).await.told();
        assert_eq!(again, (OK, vec![(OK, 8)]), "{value}");
    }
    // Over HTTP the key reads like the descriptor.
    let question = json!({"identity": "edge|remote_address=%7C=%25", "plans": ["ten"], "cost": 0});
    spile.check(question).await.is(200).says("/remaining", 8);
}

#[tokio::test]
async fn what_is_no_question_is_refused_by_name() {
    let spile = start().await;
    let client = client(&spile).await;
    let table = [
        (Request::new("", &[&[("a", "b")]]), "domain: is empty"),
        (edge(&[]), "descriptors: there are none"),
        (edge(&[&[("remote_address", "::1")], &[]]), "descriptors[1].entries: there are none"),
        (edge(&[&[("", "x")]]), "descriptors[0].entries: a key is empty"),
    ];
    for (request, said) in table {
        let refused = client.try_ask(request).await.expect_err("it is refused");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(said), "{said} in {}", refused.message());
    }
    let metrics = spile.admin("/metrics").await.text;
    assert!(
        metrics.contains("rpc_server_requests_total{listener=\"grpc\",result=\"refused\"} 4\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn rules_that_are_charged_with_another_know_the_tenant_too() {
    let rules = format!(
        "{RULES}\n[[rules]]\nid = \"paid\"\nmatch = {{ domain = \"edge\", entries = [\"tenant\", \"x\"] }}\nplans = [\"enterprise\"]\nalso = [\"members\"]
         [[rules]]\nid = \"members\"\nmatch = {{ path = \"/members\" }}\nplans = \"tenant\""
    );
    let spile = Spile::start_with(config(&rules)).await;
    let client = client(&spile).await;
    let known = client.ask(edge(&[&[("tenant", "acme"), ("x", "1")]])).await;
    assert_eq!(known.told(), (OK, vec![(OK, 9)]), "the plan `ten` of tenant acme");
    let stranger = client.ask(edge(&[&[("tenant", "nobody"), ("x", "1")]])).await;
    assert_eq!(stranger.overall_code, OVER_LIMIT, "members alone may pass");
}

#[tokio::test]
async fn of_two_limits_that_descriptors_bring_along_the_smaller_holds() {
    let spile = start().await;
    let client = client(&spile).await;
    let mut request = edge(&[&[("unheard", "of")], &[("unheard", "of")]]);
    for (descriptor, requests_per_unit) in request.descriptors.iter_mut().zip([100, 1]) {
        descriptor.limit = Some(Rate { requests_per_unit, unit: 3, name: String::new() });
    }
    assert_eq!(client.ask(request).await.overall_code, OVER_LIMIT, "two of one");
}
