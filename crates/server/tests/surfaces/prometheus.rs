//! A real Prometheus scrapes a running Spile with the rules that are shipped: every query has an answer.

use std::fs;
use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use serde_json::Value;
use spile_testkit::redis::free_port;

use crate::support::{Client, Peer, Spile, output_of, until};

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(shipped(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The shipped configuration, pointed at this Spile and hurried along.
fn configured(folder: &Path, spile: &Spile) -> PathBuf {
    for rules in ["recording.yml", "alerts.yml"] {
        fs::copy(shipped("prometheus").join(rules), folder.join(rules)).expect("rules are shipped");
    }
    let text = read("prometheus/prometheus.yml")
        .replace("spile:8081", &spile.admin.to_string())
        .replace("interval: 15s", "interval: 1s");
    let path = folder.join("prometheus.yml");
    fs::write(&path, text).expect("there is room for a file");
    path
}

/// Every query of every panel.
fn panel_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboards/spile.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("a dashboard has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("panels have targets"));
    targets.map(|target| target["expr"].as_str().expect("targets have queries").to_owned()).collect()
}

/// What every alert asks, with its threshold.
fn alert_queries(rules: &Value) -> Vec<String> {
    let groups = rules["data"]["groups"].as_array().expect("Prometheus has groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("groups have rules"));
    let alerts = rules.filter(|rule| rule["type"] == "alerting");
    alerts.map(|rule| rule["query"].as_str().expect("rules have queries").to_owned()).collect()
}

/// The figures that an alert compares, each without its threshold. What is absent is none.
fn figures(query: &str) -> Vec<String> {
    let parts = query.split(" and ").flat_map(|part| part.split(" or "));
    let figure = |part: &str| {
        let compared = [" > ", " < ", " == "].iter().find_map(|sign| Some(part.split_once(sign)?.0));
        let mut figure = compared.unwrap_or(part).trim();
        while figure.matches('(').count() > figure.matches(')').count() {
            figure = figure.strip_prefix('(').expect("an alternative begins with it");
        }
        figure.to_owned()
    };
    parts.map(figure).filter(|figure| !figure.starts_with("absent(")).collect()
}

fn escaped(query: &str) -> String {
    query.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"))
}

async fn ask(client: &Client, base: &str, path: &str) -> Option<Value> {
    let path: PathAndQuery = path.parse().expect("a path");
    let (_, text) = client.get(&format!("{base}{path}")).await.ok()?;
    serde_json::from_str(&text).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_every_panel_and_alert_has_an_answer() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    // Saves are counted where buckets are kept.
    let kept = "[store]\npath = \"buckets\"\nsave_every = \"100ms\"\n";
    let spile = Spile::start_in(folder.path(), kept).await.keep_busy();
    let config = configured(folder.path(), &spile);
    let (client, port) = (Client::new(), free_port());
    let base = format!("http://127.0.0.1:{port}");
    let _prometheus = Peer::start(
        "prometheus",
        &[
            &format!("--config.file={}", config.display()),
            &format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            &format!("--web.listen-address=127.0.0.1:{port}"),
        ],
    );
    let rules = until("the rules", async || {
        let rules = ask(&client, &base, "/api/v1/rules").await?;
        (!alert_queries(&rules).is_empty()).then_some(rules)
    })
    .await;
    let (panels, alerts) = (panel_queries(), alert_queries(&rules));
    assert!(panels.len() >= 20 && alerts.len() >= 8, "{} panels, {} alerts", panels.len(), alerts.len());
    let answered = async |query: &str| {
        let answer = ask(&client, &base, &format!("/api/v1/query?query={}", escaped(query))).await?;
        let samples = answer["data"]["result"].as_array()?;
        let is_number = |sample: &Value| sample["value"][1].as_str().is_some_and(|value| value != "NaN");
        samples.iter().any(is_number).then_some(())
    };
    for query in panels.into_iter().chain(alerts.iter().flat_map(|query| figures(query))) {
        until(&format!("an answer to {query}"), async || answered(&query).await).await;
    }
    // With its threshold, an alert has no answer while all is well, and one when something is not.
    let refused =
        alerts.iter().find(|query| query.contains("ratelimit_config_refused")).expect("it is shipped");
    assert!(answered(refused).await.is_none(), "{refused}");
    fs::write(folder.path().join("spile.toml"), "[plans]\nfree = 1\n").expect("there is room for a file");
    until(&format!("an answer to {refused}"), async || answered(refused).await).await;
    until("the alert", async || {
        let alerts = ask(&client, &base, "/api/v1/alerts").await?;
        let alerts = alerts["data"]["alerts"].as_array()?;
        let mut names = alerts.iter().map(|alert| &alert["labels"]["alertname"]);
        names.any(|name| name == "SpileConfigRefused").then_some(())
    })
    .await;
}

#[test]
fn the_alerts_pass_their_own_tests() {
    let tests = shipped("prometheus/alerts.test.yml");
    let tested = output_of("promtool", &["test", "rules", &tests.display().to_string()], "");
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
}

#[test]
fn the_scrape_configuration_is_one() {
    let config = shipped("prometheus/prometheus.yml");
    let checked = output_of("promtool", &["check", "config", &config.display().to_string()], "");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
