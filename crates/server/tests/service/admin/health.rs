//! The admin listener: health and metrics.

use std::path::Path;

use serde_json::json;
use spile_server::Config;

use crate::support::Spile;

#[tokio::test]
async fn a_running_server_is_alive_and_ready() {
    let spile = Spile::start().await;
    assert_eq!(spile.admin("/livez").await.is(200).text, "ok\n");
    assert_eq!(spile.admin("/readyz").await.is(200).text, "ready\n");
    spile.admin("/nothing").await.is(404).carries("content-type", "application/problem+json");
}

#[tokio::test]
async fn metrics_count_every_decision_by_rule_and_outcome_and_never_name_a_key() {
    let spile = Spile::start().await;
    for _ in 0..12 {
        spile.check(json!({"ruleId": "default", "identity": "somebody"})).await;
    }
    let metrics = spile.admin("/metrics").await.is(200).text;
    let decisions = |outcome: &str, count: u32| {
        format!(
            "ratelimit_decisions_total{{rule=\"default\",limit=\"free\",outcome=\"{outcome}\",source=\"store\"}} {count}"
        )
    };
    for line in [decisions("allowed", 10), decisions("denied", 2)] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    assert!(metrics.contains("http_server_requests_total{listener=\"http\",status=\"429\"} 2"), "{metrics}");
    assert!(metrics.contains("ratelimit_failclosed_total{reason=\"timeout\"} 0"), "{metrics}");
    assert!(!metrics.contains("somebody"), "{metrics}");
}

#[tokio::test]
async fn a_server_that_is_told_not_to_watch_decides_and_counts_nothing() {
    let file = "[observe]\nenabled = false\n".to_owned();
    let config = Config::parse(Path::new("spile.toml"), file, []).unwrap_or_else(|why| panic!("{why}"));
    let spile = Spile::start_with(config).await;
    for status in [200; 10].into_iter().chain([429]) {
        spile.check(json!({"ruleId": "default", "identity": "somebody"})).await.is(status);
    }
    let metrics = spile.admin("/metrics").await.is(200).text;
    let counted = |line: &&str| {
        ["ratelimit_decisions", "ratelimit_store_duration", "http_server"]
            .iter()
            .any(|name| line.starts_with(name))
            && !line.ends_with(" 0")
    };
    assert_eq!(metrics.lines().find(counted), None);
}

#[tokio::test]
async fn keys_held_and_buckets_forgotten_at_the_bound_are_metrics() {
    let mut config = Config::default();
    config.store.max_keys = 10;
    let spile = Spile::start_with(config).await;
    for caller in 0..30 {
        spile.check(json!({"ruleId": "default", "identity": format!("user:{caller}")})).await.is(200);
    }
    let metrics = spile.admin("/metrics").await.is(200).text;
    assert!(metrics.contains("ratelimit_embedded_keys 10\n"), "{metrics}");
    assert!(metrics.contains("ratelimit_embedded_evictions_total 20\n"), "{metrics}");
}

#[tokio::test]
async fn invented_rule_ids_do_not_grow_the_metrics_without_end() {
    let spile = Spile::start().await;
    let question = |index: usize| json!({"ruleId": format!("r{index}"), "identity": "a", "capacity": 1, "refillPerSecond": 1});
    for batch in 0..5 {
        let questions: Vec<_> = (0..500).map(|index| question(batch * 500 + index)).collect();
        spile.batch(json!(questions)).await.is(200);
    }
    let metrics = spile.admin("/metrics").await.text;
    let series = metrics.lines().filter(|line| line.starts_with("ratelimit_decisions_total")).count();
    assert!(series <= 2_002, "{series} series");
    assert!(metrics.contains("rule=\"__overflow__\""));
}

#[tokio::test]
async fn the_root_leads_to_the_dashboard() {
    let spile = Spile::start().await;
    let answer = spile.admin("/").await.is(302).carries("location", "/dashboard");
    assert!(answer.text.contains("/admin/v1"), "{}", answer.text);
    spile.admin("/dashboard").await.is(200);
}
