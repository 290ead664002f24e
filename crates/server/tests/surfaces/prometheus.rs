//! A real Prometheus scrapes a running Spile with the rules that are shipped: every query has an answer.

use std::fs;
use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use serde_json::Value;

use crate::support::{Client, Peer, Spile, free_port, output_of, until};

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

/// The figures that every alert compares: what it asks without its threshold, and without waiting an hour.
fn alert_queries(rules: &Value) -> Vec<String> {
    let groups = rules["data"]["groups"].as_array().expect("Prometheus has groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("groups have rules"));
    let alerts = rules.filter(|rule| rule["type"] == "alerting");
    let queries = alerts.map(|rule| rule["query"].as_str().expect("rules have queries"));
    queries.flat_map(|query| query.split(" and ").map(without_threshold).collect::<Vec<_>>()).collect()
}

fn without_threshold(query: &str) -> String {
    let figure = query.split(" > ").next().unwrap_or(query);
    figure.split(" == ").next().unwrap_or(figure).trim().to_owned()
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
    for query in panels.into_iter().chain(alerts) {
        let path = format!("/api/v1/query?query={}", escaped(&query));
        until(&format!("an answer to {query}"), async || {
            let answer = ask(&client, &base, &path).await?;
            let samples = answer["data"]["result"].as_array()?;
            let is_number = |sample: &Value| sample["value"][1].as_str().is_some_and(|value| value != "NaN");
            samples.iter().any(is_number).then_some(())
        })
        .await;
    }
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
