//! Real clients: redis-cli, redis-benchmark and redis-py.

use std::process::{Command, Output, Stdio};

use crate::support::Process;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/redis/bin/python");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/resp/client.py");

fn port(spile: &Process) -> String {
    let (_, port) = spile.address("resp").rsplit_once(':').expect("an address has a port");
    port.to_owned()
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|why| panic!("cannot run {command:?}: {why}; scripts/install-test-deps installs it"));
    let (told, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {told}\n{errors}");
    told.into_owned()
}

#[test]
fn redis_cli_asks_in_either_protocol() {
    let spile = Process::serve(&["--resp", "127.0.0.1:0"]);
    let port = port(&spile);
    let cli = |words: &[&str]| run(Command::new("redis-cli").args(["-p", &port]).args(words));
    assert_eq!(cli(&["CL.THROTTLE", "user:1", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(cli(&["-3", "CL.THROTTLE", "user:1", "15", "30", "3600", "0"]), "0\n16\n15\n-1\n120\n");
    assert!(cli(&["-3", "HELLO", "3"]).contains("proto 3"));
    assert!(cli(&["CL.THROTTLE", "user:1", "x", "30", "60"]).starts_with("ERR max_burst 'x'"));
    assert_eq!(cli(&["PING"]), "PONG\n");
}

#[test]
fn redis_benchmark_pipelines_over_many_connections() {
    let spile = Process::serve(&["--resp", "127.0.0.1:0"]);
    let asked = ["CL.THROTTLE", "key:__rand_int__", "9", "1", "60"];
    let shape = ["-n", "5000", "-c", "20", "-P", "16", "-r", "50", "-q"];
    run(Command::new("redis-benchmark").args(["-p", &port(&spile)]).args(shape).args(asked));
    let counted = |result: &str| {
        let series = format!("rpc_server_requests_total{{listener=\"resp\",result=\"{result}\"}}");
        spile.metric(&series).expect("answers are counted")
    };
    // Fifty keys of ten tokens each, and hardly time for another token.
    assert!((500.0..=600.0).contains(&counted("allowed")), "{}", counted("allowed"));
    // It counts by whole pipelines, of which each connection may have begun one more.
    let answered = counted("allowed") + counted("limited");
    assert!((5_000.0..=5_320.0).contains(&answered), "{answered}");
}

#[test]
fn redis_py_asks_in_either_protocol_pipelines_and_authenticates() {
    let password = "correct horse battery staple";
    let open = Process::serve(&["--resp", "127.0.0.1:0"]);
    let guarded = Process::serve_with(&["--resp", "127.0.0.1:0"], &[("SPILE_RESP_PASSWORD", password)]);
    let told = run(Command::new(PYTHON).arg(SCRIPT).args([&port(&open), &port(&guarded), password]));
    assert_eq!(told, "all is well\n");
}
