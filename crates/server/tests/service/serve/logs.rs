//! What the log of the process says, how much of it, and in which format.

use std::io::Write;

use rustix::process::Signal;
use spile_testkit::wait;

use crate::support::Process;

fn is_json(text: &str) -> bool {
    !text.is_empty() && text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
}

#[test]
fn the_level_comes_from_flag_environment_and_file_in_this_order_and_a_reload_changes_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let name = path.to_str().expect("the folder's name is text");
    std::fs::write(&path, "[log]\nlevel = \"error\"\n").expect("the folder is ours");
    let quiet = Process::serve(&["--config", name]);
    quiet.send(Signal::HUP);
    let applied = "ratelimit_config_reloads_total{result=\"applied\"}";
    wait::until_true("a reload", || quiet.metric(applied) == Some(1.0));
    assert_eq!(quiet.log(), "", "nothing was worth an error");
    std::fs::write(&path, "[log]\nlevel = \"info\"\n").expect("the folder is ours");
    quiet.send(Signal::HUP);
    quiet.until_logged("configuration applied");

    std::fs::write(&path, "[log]\nlevel = \"info\"\n").expect("the folder is ours");
    let by_variable = Process::serve_with(&["--config", name], &[("SPILE_LOG_LEVEL", "off")]);
    by_variable.send(Signal::HUP);
    wait::until_true("a reload", || by_variable.metric(applied) == Some(1.0));
    assert_eq!(by_variable.log(), "");
    let by_flag =
        Process::serve_with(&["--config", name, "--log-level", "info"], &[("SPILE_LOG_LEVEL", "off")]);
    by_flag.send(Signal::HUP);
    by_flag.until_logged("configuration applied");
}

#[test]
fn a_level_that_does_not_exist_is_refused_with_those_that_do() {
    for (arguments, variables) in [
        (vec!["serve", "--log-level", "debgu"], vec![]),
        (vec!["serve"], vec![("SPILE_LOG_LEVEL", "debgu")]),
        (vec!["serve"], vec![("SPILE_LOG__LEVEL", "debgu")]),
    ] {
        let output = Process::run_with(&arguments, &variables);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("debgu") && text.contains("off, error, warn, info, debug or trace"), "{text}");
    }
}

#[test]
fn errors_at_the_start_are_json_where_json_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    std::fs::write(&path, "[log]\nformat = \"json\"\n[plans]\nfree = 3\n").expect("the folder is ours");
    let wrong_file = path.to_str().expect("the folder's name is text");
    let ours = folder.path().join("ours.toml");
    std::fs::write(&ours, "[log]\nformat = \"json\"\n").expect("the folder is ours");
    let json_file = ours.to_str().expect("the folder's name is text");
    for (arguments, words) in [
        (vec!["serve", "--log-format", "json", "--config", wrong_file], "free"),
        (vec!["serve", "--log-format=json", "--no-such-flag"], "--no-such-flag"),
        (vec!["serve", "--log-format", "json", "--admin", "0.0.0.0:0"], "SPILE_ADMIN_TOKEN"),
        (vec!["serve", "--config", json_file, "--admin", "0.0.0.0:0"], "SPILE_ADMIN_TOKEN"),
        (vec!["serve", "--log-format", "json", "--log-level", "off", "--http", "192.0.2.1:1"], "192.0.2.1:1"),
    ] {
        let output = Process::run(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(is_json(&text) && text.contains(words) && text.contains("\"level\":\"ERROR\""), "{text}");
        assert!(output.stdout.is_empty());
    }
    let output = Process::run(&["serve", "--admin", "0.0.0.0:0"]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("spile: "), "people read text");
}

#[test]
fn a_reload_tells_what_it_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let name = path.to_str().expect("the folder's name is text");
    std::fs::write(&path, "[plans]\ngold = { capacity = 1, refill = \"1/s\" }\n")
        .expect("the folder is ours");
    let spile = Process::serve(&["--config", name]);
    let next = "[plans]\ngold = { capacity = 2, refill = \"1/s\" }\nnew = { capacity = 2, refill = \"1/s\" }\n\
                [[tenants]]\nid = \"acme\"\nplan = \"gold\"\n";
    std::fs::write(&path, next).expect("the folder is ours");
    spile.until_logged(
        "configuration applied: plans: 1 added (new), 1 changed (gold); tenants: 1 added (acme)",
    );
}

#[test]
fn a_stop_and_the_progress_of_its_drain_are_logged() {
    let spile = Process::serve(&[]);
    let mut caller = spile.connect("http");
    // Half of a request: it is under way.
    let half = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 38\r\n\r\n{";
    caller.write_all(half.as_bytes()).expect("it reads");
    wait::until_true("the connection", || spile.metric("server_connections{listener=\"http\"}") == Some(1.0));
    spile.send(Signal::TERM);
    spile.until_logged("SIGTERM received: stopping");
    spile.until_logged("still draining: 1 connections of http");
    caller.write_all(br#""ruleId":"default","identity":"late"}"#).expect("it reads");
    spile.until_logged("drained");
    spile.until_logged("stopped");
    assert!(!spile.log().contains("late"), "{}", spile.log());
}
