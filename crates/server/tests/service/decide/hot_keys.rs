//! A server on Redis repeats denials and spends leases by itself, says so, and gives back what it took.

use rustix::process::Signal;
use spile_testkit::redis::{RedisReply, RedisServer};

use crate::support::Process;

const PLANS: &str = r#"
[plans.shared]
capacity = 100000
refill = "1000/h"
lease = "10s"

[plans.small]
capacity = 1
refill = "1/h"
"#;

/// A server on this Redis, and the folder of its file.
fn serve(redis: &RedisServer) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spile.toml");
    let text = format!("[store]\nurl = \"{}\"\ntimeout = \"1s\"\n{PLANS}", redis.url());
    std::fs::write(&file, text).expect("the folder is ours");
    (Process::serve(&["--config", file.to_str().expect("its name is text")]), folder)
}

fn check(spile: &Process, plan: &str) -> bool {
    let question = format!(r#"{{"identity":"acme","plans":["{plan}"]}}"#);
    spile.ask("http", "POST", "/v1/check", &question).starts_with("HTTP/1.1 200")
}

/// The decisions under a limit by their source.
fn decisions(spile: &Process, limit: &str, outcome: &str, source: &str) -> f64 {
    let series = format!(
        r#"ratelimit_decisions_total{{rule="",limit="{limit}",outcome="{outcome}",source="{source}"}}"#
    );
    spile.metric(&series).unwrap_or(0.0)
}

#[test]
fn a_flood_of_denials_hardly_reaches_redis() {
    let redis = RedisServer::start();
    let (spile, _folder) = serve(&redis);
    assert!(check(&spile, "small"));
    assert!((0..200).all(|_| !check(&spile, "small")));
    let (asked, repeated) =
        (decisions(&spile, "small", "denied", "store"), decisions(&spile, "small", "denied", "deny_cache"));
    assert!(
        (asked + repeated - 200.0).abs() < 0.5 && asked <= 20.0,
        "{asked} by the store, {repeated} by the cache"
    );
}

#[test]
fn leased_tokens_are_seen_and_are_back_in_redis_when_the_server_has_stopped() {
    let redis = RedisServer::start();
    let (spile, _folder) = serve(&redis);
    assert!((0..100).all(|_| check(&spile, "shared")));
    let leased = decisions(&spile, "shared", "allowed", "lease");
    assert!(leased >= 50.0, "{leased} of 100 by a lease");
    let (here, portions) =
        (spile.metric("ratelimit_leased_tokens"), spile.metric("ratelimit_lease_portions_total"));
    assert!(here.is_some_and(|tokens| tokens > 0.0) && portions >= Some(1.0), "{here:?}, {portions:?}");
    let (status, log) = spile.end_by(Signal::TERM);
    assert!(status.success(), "{log}");
    let held = redis.command(&["HGET", "spile:{acme}:shared", "t"]);
    let RedisReply::Text(held) = held else { panic!("{held:?}") };
    let tokens: f64 = held.parse::<f64>().expect("digits") / 1e6;
    assert!((99_900.0..99_920.0).contains(&tokens), "{tokens} tokens");
}
