//! The reference pages are complete: keys, metrics, alerts, paths and commands are compared with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use spile_server::Config;
use spile_server::cli::Cli;

use super::{read, root};

/// The prefixes of metric names. Those of the process come from the exporter.
const PREFIXES: [&str; 7] = [
    "ratelimit_",
    "gateway_",
    "http_server_",
    "rpc_server_",
    "server_connections",
    "spile_build_info",
    "spile_registry_",
];

fn page(name: &str) -> String {
    read(&root().join("docs/guide").join(name))
}

/// The keys that the table takes, as the error about an unknown one lists them.
fn keys_of(file: &str) -> Vec<String> {
    let why = Config::parse(Path::new("spile.toml"), file.to_owned(), []).expect_err("an unknown key");
    let why = why.to_string();
    let list = why.split("it takes ").nth(1).and_then(|rest| rest.lines().next());
    list.unwrap_or_else(|| panic!("no list of keys in {why}")).split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_file_is_documented() {
    let configuration = page("configuration.md");
    for file in [
        "none = 1",
        "[listen]\nnone = 1",
        "[http.tls]\nnone = 1",
        "[store]\nnone = 1",
        "[admin]\nnone = 1",
        "[grpc]\nnone = 1",
        "[resp]\nnone = 1",
        "[clients]\nnone = 1",
        "[forward_auth]\nnone = 1",
        "[log]\nnone = 1",
        "[observe]\nnone = 1",
        "[[webhooks]]\nnone = 1",
        "[plans.x]\nnone = 1",
        "[plans.x]\nlimits = [{ none = 1 }]",
        "[[rules]]\nnone = 1",
        "[[rules]]\nmatch = { none = 1 }",
        "[[tenants]]\nnone = 1",
    ] {
        for key in keys_of(file) {
            let spellings = [format!("`{key}`"), format!("{key} = "), format!("[{key}"), format!(".{key}]")];
            let is_documented = spellings.iter().any(|spelling| configuration.contains(spelling.as_str()));
            assert!(is_documented, "configuration.md lacks `{key}` of {file:?}");
        }
    }
}

/// The names of metrics in these files, in quotes in a program and in backticks on a page.
fn metrics_in(text: &str, quote: char) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let names =
        text.split(quote).map(|part| part.split(|letter| !is_name(letter)).next().unwrap_or_default());
    let is_metric =
        |name: &&str| !name.ends_with('_') && PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    names.filter(is_metric).map(str::to_owned).collect()
}

fn metrics_of_the_code() -> BTreeSet<String> {
    let mut folders: Vec<_> = ["gateway", "listener", "observe", "server"]
        .map(|name| root().join("crates").join(name).join("src"))
        .into();
    let mut metrics = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                metrics.extend(metrics_in(&read(&path), '"'));
            }
        }
    }
    metrics
}

#[test]
fn the_page_of_metrics_has_those_of_the_code_and_no_others() {
    assert_eq!(metrics_in(&page("metrics.md"), '`'), metrics_of_the_code());
}

#[test]
fn every_alert_is_documented() {
    let (alerts, rules) = (page("alerts.md"), read(&root().join("deploy/prometheus/alerts.yml")));
    let names: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(alerts.contains(&format!("| `{name}` |")), "alerts.md lacks {name}");
    }
}

#[test]
fn every_path_is_documented() {
    let printed = Command::new(env!("CARGO_BIN_EXE_spile")).arg("openapi").output().expect("it was built");
    let description: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    let pages = ["http-api.md", "admin-api.md", "dashboard.md"].map(page).concat();
    for path in description["paths"].as_object().expect("paths").keys() {
        let ends = ['`', '?', ' '].map(|end| format!("{path}{end}"));
        assert!(ends.iter().any(|spelling| pages.contains(spelling.as_str())), "no page has {path}");
    }
}

#[test]
fn every_command_and_flag_is_documented() {
    let page = page("command-line.md");
    let mut open: Vec<(String, clap::Command)> = vec![("spile".to_owned(), Cli::command())];
    while let Some((path, command)) = open.pop() {
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let is_shown = flag == "help" || page.contains(&format!("--{flag}"));
            assert!(is_shown, "command-line.md lacks --{flag} of `{path}`");
        }
        for sub in command.get_subcommands() {
            let name = sub.get_name();
            let row = page.lines().find(|line| line.contains(&format!("`{path} ")));
            let in_row = row.is_some_and(|row| row.contains(&format!("`{name}")));
            let is_shown = in_row || page.contains(&format!("`{path} {name}"));
            assert!(is_shown, "command-line.md lacks `{path} {name}`");
            open.push((format!("{path} {name}"), sub.clone()));
        }
    }
}
