//! Schemathesis: what the description promises, asked of a real server. Each operation gets its examples, requests at and
//! beyond every bound, and [`EXAMPLES`] that are made up, about half of which the description forbids.
//!
//! In requests that the description allows, `hooks.py` puts rules and plans that there are in place of made-up names, and
//! numbers that go together in place of others: the description can say neither. What it forbids is sent as it was made.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::Process;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/schemathesis/bin/st");
/// Requests that are made up for each operation, besides those at its bounds.
const EXAMPLES: &str = "30";
/// Bodies of each kind that are sent to a listener at least: far fewer, and something else than the server was tried.
const BODIES: u64 = 250;
/// The same requests each time: a failure can be looked at again.
const SEED: &str = "1";

#[test]
fn the_decision_api_does_what_its_description_says() {
    // Forward-auth takes any method there is, also those that OpenAPI has no word for.
    let checks = "unsupported_method,allow_header_conformance";
    assert_conforms("http", &["--include-path-regex", "^/(v1|api)/", "--exclude-checks", checks]);
}

#[test]
fn the_admin_listener_does_what_its_description_says() {
    // A stream of events never ends, and so is never answered.
    assert_conforms("admin", &["--exclude-path-regex", "^/(v1|api)/|^/dashboard/events$"]);
}

fn assert_conforms(listener: &str, operations: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spile.toml");
    std::fs::copy(Path::new(FOLDER).join("spile.toml"), &file).expect("the folder is ours");
    let file = file.to_str().expect("the folder's name is text");
    let spile = Process::serve_with(&["--config", file], &[("SPILE_ADMIN_TOKEN", TOKEN)]);
    let sent = folder.path().join("sent.json");
    let output = Command::new(PROGRAM)
        .args(["--config-file", &format!("{FOLDER}/schemathesis.toml")])
        .args(["run", &format!("http://{}/openapi.json", spile.address("admin"))])
        .args(["--url", &format!("http://{}", spile.address(listener))])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--checks", "all", "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--generation-database", "none"])
        .args(["--warnings", "off", "--no-color"])
        .args(operations)
        .envs([("SCHEMATHESIS_HOOKS", "hooks"), ("PYTHONPATH", FOLDER), ("PYTHONDONTWRITEBYTECODE", "1")])
        .env("SENT", &sent)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|why| panic!("cannot run {PROGRAM}: {why}; scripts/install-test-deps installs it"));
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{errors}");
    let sent: Value =
        serde_json::from_str(&std::fs::read_to_string(sent).expect("hooks.py counts")).expect("JSON");
    println!("bodies sent to {listener}: {sent}");
    for kind in ["allowed", "forbidden"] {
        assert!(sent[kind].as_u64().is_some_and(|count| count >= BODIES), "{sent}\n{told}");
    }
}
