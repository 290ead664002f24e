//! A Redis that is there and refuses: what operators see of it.

use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use crate::support::Process;

const QUESTION: &str = r#"{"ruleId":"default","identity":"user:123"}"#;

fn readiness(spile: &Process) -> String {
    spile.ask("admin", "GET", "/readyz", "")
}

fn is_ready(spile: &Process) -> bool {
    readiness(spile).starts_with("HTTP/1.1 200")
}

fn reason(spile: &Process) -> String {
    let answer = spile.ask("http", "POST", "/v1/check", QUESTION);
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"));
    body["reason"].as_str().unwrap_or_default().to_owned()
}

fn refusals(spile: &Process, kind: &str) -> f64 {
    let series = format!("ratelimit_store_refusals_total{{kind=\"{kind}\"}}");
    spile.metric(&series).expect("every kind has a series")
}

#[test]
fn a_redis_without_memory_is_told_of_in_its_own_words_wherever_operators_look() {
    let redis = RedisServer::start();
    let spile = Process::serve(&["--store", &redis.url(), "--on-failure", "deny"]);
    assert_eq!((reason(&spile).as_str(), is_ready(&spile)), ("ok", true));
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..20 {
        assert_eq!(reason(&spile), "fail_closed");
    }
    let answer = readiness(&spile);
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("store lost: Redis refuses: OOM"),
        "{answer}"
    );
    assert!(refusals(&spile, "oom") >= 20.0 && refusals(&spile, "acl") == 0.0);
    wait::until_true("the dashboard", || {
        spile.ask("admin", "GET", "/dashboard/snapshot", "").contains("Redis refuses: OOM")
    });
    spile.until_logged("store lost");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    // Nobody asks for a decision meanwhile, as where a balancer leaves out whoever is not ready.
    wait::until_true("the instance to be ready", || is_ready(&spile));
    spile.until_logged("store recovered");
    let log = spile.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("store lost")).collect();
    assert!(lines.len() == 1 && lines[0].contains("OOM command not allowed"), "{log}");
}

#[test]
fn an_instance_that_lets_requests_pass_is_ready_and_says_what_the_store_refuses() {
    let redis = RedisServer::builder().line("user app on >s3cret ~* &* +@all").start();
    let url = format!("redis://app:s3cret@{}", redis.address());
    let spile = Process::serve(&["--store", &url]);
    assert_eq!(reason(&spile), "ok");
    redis.command(&["ACL", "SETUSER", "app", "-hset"]);
    assert_eq!(reason(&spile), "fail_open");
    let answer = readiness(&spile);
    assert!(answer.contains("ready\n") && answer.contains("store lost: Redis refuses: "), "{answer}");
    assert!(is_ready(&spile) && refusals(&spile, "acl") >= 1.0);
}
