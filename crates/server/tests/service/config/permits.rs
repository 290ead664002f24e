//! Concurrencies that are refused before they are in force: those that are written wrong, and those that Envoy would be asked about, which
//! cannot release a permit.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use spile_server::Config;

use crate::support::{Office, Process};

const FILE: &str = r#"[plans]
free = { capacity = 10, refill = "1/s" }
jobs = { concurrency = 5, hold = "30s" }
[[rules]]
id = "edge"
match = { domain = "edge", entries = ["tenant"] }
plans = "tenant"
anonymous_plan = "free"
[[rules]]
id = "jobs"
match = { path = "/jobs" }
plans = ["jobs"]
[[tenants]]
id = "acme"
plan = "free"
"#;

const WHY: &str = "which is a concurrency: Envoy does not tell when a request has ended, so that no permit could be released";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("spile.toml"), text.to_owned(), []).map_err(|why| why.to_string())
}

#[test]
fn a_rule_for_descriptors_that_charges_a_concurrency_is_refused_with_its_line() {
    parse(FILE).expect("no descriptor leads to the concurrency");
    for (from, to, line) in [
        (
            "plans = \"tenant\"\nanonymous_plan = \"free\"",
            "plans = [\"free\", \"jobs\"]",
            " --> spile.toml:7:9\n",
        ),
        ("anonymous_plan = \"free\"", "anonymous_plan = \"jobs\"", " --> spile.toml:7:9\n"),
        ("plan = \"free\"\n", "plan = \"jobs\"\n", " --> spile.toml:7:9\n"),
        ("anonymous_plan", "also = [\"jobs\"]\nanonymous_plan", " --> spile.toml:7:9\n"),
    ] {
        assert!(FILE.contains(from), "{from}");
        let at = FILE.rfind(from).expect("it is there");
        let text = format!("{}{to}{}", &FILE[..at], &FILE[at + from.len()..]);
        let why = parse(&text).expect_err(to);
        assert!(why.contains(line) && why.contains("rule `edge`") && why.contains(WHY), "{to}: {why}");
        assert!(why.contains("plans without a `concurrency`"), "{why}");
    }
}

#[test]
fn a_limit_of_two_kinds_is_told_what_does_not_belong_to_it() {
    for (limit, why) in [
        ("{ concurrency = 5, capacity = 9 }", "a concurrency has no `capacity`"),
        ("{ capacity = 10, refill = \"1/s\", hold = \"30s\" }", "only a concurrency has a `hold`"),
        ("{ quota = 10, per = \"day\", hold = \"30s\" }", "only a concurrency has a `hold`"),
    ] {
        let refused = parse(&format!("[plans]\njobs = {limit}\n")).expect_err(limit);
        assert!(refused.contains(why) && refused.contains(" --> spile.toml:2:"), "{limit}: {refused}");
    }
}

#[test]
fn the_check_of_a_file_says_so_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spile.toml");
    std::fs::write(&file, FILE.replace("anonymous_plan = \"free\"", "anonymous_plan = \"jobs\""))
        .expect("it is ours");
    let output = Process::run(&["config", "check", file.to_str().expect("text")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("spile.toml:7:9") && said.contains(WHY), "{said}");
}

#[tokio::test]
async fn a_change_that_would_lead_envoy_to_a_concurrency_is_refused() {
    let office = Office::open_with(FILE).await;
    let before = office.everything().await;
    let edge = json!({"match": {"domain": "edge", "entries": ["who"]}, "plans": ["jobs"]});
    for (path, body) in [
        ("tenants/acme", json!({"plan": "jobs"})),
        ("tenants/new", json!({"plan": "jobs"})),
        ("plans/free", json!({"concurrency": 3})),
        ("rules/other", edge),
    ] {
        let refused = office.ask(Method::PUT, &format!("/admin/v1/{path}"), body).await.is(422);
        assert!(refused.text.contains(WHY), "{path}: {}", refused.text);
    }
    assert_eq!(office.everything().await, before);
    office.ask(Method::PUT, "/admin/v1/tenants/new", json!({"plan": "free"})).await.is(201);
    office.ask(Method::PUT, "/admin/v1/plans/more", json!({"concurrency": 3, "hold": "5s"})).await.is(201);
    let question = json!({"plans": ["more"], "identity": "a"}).to_string();
    office.spile.post("/v1/acquire", question).await.is(200).says("/limit", 3).says("/holdMs", 5000);
    let refused = office.reload_with("anonymous_plan = \"free\"", "anonymous_plan = \"jobs\"").await;
    assert!(refused.status == 422 && refused.text.contains(WHY), "{refused:?}");
    assert_eq!(office.get("/admin/v1/plans/more").await.is(200).json()["concurrency"], Value::from(3));
}
