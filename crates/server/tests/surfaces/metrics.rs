//! What `/metrics` shows, as Prometheus's own linter sees it.

use crate::support::{Client, Spile, output_of, until};

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_nothing_wrong_with_the_metrics() {
    let spile = Spile::start().await.keep_busy();
    let (client, url) = (Client::new(), spile.admin_url("/metrics"));
    let busy = async || {
        let (_, text) = client.get(&url).await.ok()?;
        text.contains("outcome=\"denied\",source=\"store\"").then_some(text)
    };
    let metrics = until("a denial in the metrics", busy).await;
    let linted = output_of("promtool", &["check", "metrics"], &metrics);
    let said =
        String::from_utf8_lossy(&linted.stderr).into_owned() + &String::from_utf8_lossy(&linted.stdout);
    assert!(linted.status.success() && said.trim().is_empty(), "{said}\n{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_is_shown_is_documented() {
    let spile = Spile::start().await;
    let (_, metrics) = Client::new().get(&spile.admin_url("/metrics")).await.expect("an answer");
    let page = include_str!("../../../../docs/guide/metrics.md");
    let names = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<_> = names.filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(metrics.contains("process_threads") && missing.is_empty(), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_design_is_there() {
    let spile = Spile::start().await.keep_busy();
    let (client, url) = (Client::new(), spile.admin_url("/metrics"));
    let all = [
        "ratelimit_decisions_total{",
        "ratelimit_failclosed_total{reason=\"rediserror\"}",
        "ratelimit_failclosed_total{reason=\"badresponse\"}",
        "ratelimit_failclosed_total{reason=\"badtypes\"}",
        "ratelimit_failopen_total{reason=\"timeout\"}",
        "ratelimit_local_total{reason=\"breakeropen\"}",
        "ratelimit_store_failures_total{op=\"settle\",reason=\"overloaded\"} 0",
        "ratelimit_store_duration_seconds_bucket{op=\"spend\"",
        "ratelimit_bucket_level_ratio_bucket{limit=\"free\"",
        "ratelimit_store_duration_seconds_bucket{op=\"permit\"",
        "ratelimit_permits_held{limit=\"exports\"} 3",
        "ratelimit_permits_total{limit=\"exports\",event=\"acquired\"}",
        "ratelimit_permits_total{limit=\"exports\",event=\"lost\"} 0",
        "ratelimit_permits_expired_total 3",
        "ratelimit_breaker_state ",
        "ratelimit_queue_depth ",
        "ratelimit_store_refusals_total{kind=\"oom\"} 0",
        "ratelimit_store_repairs_total 0",
        "ratelimit_config_reloads_total{result=\"applied\"}",
        "spile_build_info{version=\"",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "process_max_fds ",
        "process_start_time_seconds ",
        "process_threads ",
        "http_server_requests_total{listener=\"http\",status=\"200\"}",
        "http_server_request_duration_seconds_bucket{listener=\"http\"",
    ];
    until("every metric", async || {
        let (_, text) = client.get(&url).await.ok()?;
        all.iter().all(|name| text.contains(name)).then_some(())
    })
    .await;
}
