//! A Redis that is there and refuses: what operators see of it, and how its new password is taken up.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use spile_testkit::redis::{RedisSentinel, RedisServer};
use spile_testkit::wait;

use crate::doors::{House, Store};
use crate::support::{Process, Spile};

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
    let spile = Process::serve_with(&["--store", &redis.url(), "--on-failure", "deny"], &[Process::PATIENT]);
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
    // No decision is asked for meanwhile: a load balancer leaves out an instance that is not ready.
    wait::until_true("the instance to be ready", || is_ready(&spile));
    spile.until_logged("store recovered");
    let log = spile.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("store lost")).collect();
    assert!(lines.len() == 1 && lines[0].contains("OOM command not allowed"), "{log}");
}

const PLANS: &str =
    "[plans.free]\ncapacity = 10\nrefill = \"1/h\"\n[plans.jobs]\nconcurrency = 2\nhold = \"10m\"\n";

#[tokio::test]
async fn operations_that_redis_refuses_are_counted_by_name_and_reason() {
    let redis = RedisServer::start();
    let spile = House::with(PLANS, &Store::Redis(&redis)).await.spile;
    let tokens = json!({"plans": ["free"], "identity": "user:1", "cost": 1});
    let place = json!({"plans": ["jobs"], "identity": "user:1"});
    let given = async |path: &str, question: &Value, member: &str| {
        spile.post(path, question.to_string()).await.is(200).json()[member].clone()
    };
    let reservation = json!({"id": given("/v1/reserve", &tokens, "id").await, "cost": 3});
    let held = json!({"permit": given("/v1/acquire", &place, "permit").await});
    redis.command(&["ACL", "SETUSER", "default", "-@scripting"]);
    for (path, question, op) in [
        ("/v1/check", &tokens, "spend"),
        ("/v1/peek", &tokens, "peek"),
        ("/v1/charge", &tokens, "charge"),
        ("/v1/refund", &tokens, "refund"),
        ("/v1/settle", &reservation, "settle"),
        ("/v1/acquire", &place, "acquire"),
        ("/v1/renew", &held, "renew"),
        ("/v1/release", &held, "release"),
    ] {
        let before = failures(&spile).await;
        spile.post(path, question.to_string()).await;
        let more: Vec<_> =
            failures(&spile).await.into_iter().filter(|series| !before.contains(series)).collect();
        assert_eq!(more, [format!("{{op=\"{op}\",reason=\"rediserror\"}} 1")], "{path}");
    }
}

async fn failures(spile: &Spile) -> Vec<String> {
    let metrics = spile.admin("/metrics").await.text;
    let series = metrics.lines().filter_map(|line| line.strip_prefix("ratelimit_store_failures_total"));
    series.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_broken_bucket_that_is_repaired_is_counted() {
    let mut spile = Spile::start_on_redis().await;
    spile.redis().command(&["SET", "spile:{user%3A123}:free", "x"]);
    for remaining in [9, 8] {
        let question = serde_json::from_str(QUESTION).expect("it is JSON");
        spile.check(question).await.is(200).says("/reason", "ok").says("/remaining", remaining);
    }
    let metrics = spile.admin("/metrics").await.text;
    assert!(metrics.contains("\nratelimit_store_repairs_total 1\n"), "{metrics}");
}

#[test]
fn an_instance_that_lets_requests_pass_is_ready_and_says_what_the_store_refuses() {
    let redis = RedisServer::builder().line("user app on >s3cret ~* &* +@all").start();
    let url = format!("redis://app:s3cret@{}", redis.address());
    let spile = Process::serve_with(&["--store", &url], &[Process::PATIENT]);
    assert_eq!(reason(&spile), "ok");
    redis.command(&["ACL", "SETUSER", "app", "-hset"]);
    assert_eq!(reason(&spile), "fail_open");
    let answer = readiness(&spile);
    assert!(answer.contains("ready\n") && answer.contains("store lost: Redis refuses: "), "{answer}");
    assert!(is_ready(&spile) && refusals(&spile, "acl") >= 1.0);
}

#[test]
fn a_refusal_that_may_be_a_failover_is_logged_in_redis_own_words_once_it_lasts() {
    let redis = RedisServer::start();
    let spile = Process::serve_with(&["--store", &redis.url()], &[Process::PATIENT]);
    assert_eq!(reason(&spile), "ok");
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(reason(&spile), "fail_open");
    spile.until_logged("NOREPLICAS");
    assert!(refusals(&spile, "noreplicas") >= 1.0);
}

#[test]
fn a_sentinel_that_refuses_the_subscription_is_warned_of_and_costs_no_readiness() {
    let mut sentinel = RedisSentinel::start();
    for one in sentinel.sentinels() {
        let rights = ["resetchannels", "-@all", "+sentinel|master", "+subscribe", "+ping"];
        one.command(&[&["ACL", "SETUSER", "deaf", "on", ">s3cret"], &rights[..]].concat());
    }
    let url = sentinel.url_as("deaf", "s3cret");
    let spile = Process::serve_with(&["--store", &url, "--on-failure", "deny"], &[Process::PATIENT]);
    spile.until_logged("NOPERM");
    wait::until_true("a decision by the store", || reason(&spile) == "ok");
    let answer = readiness(&spile);
    assert!(is_ready(&spile) && answer.contains("store warning: sentinel 127.0.0.1:"), "{answer}");
    assert!(!spile.log().contains("s3cret"), "{}", spile.log());
}

#[test]
fn a_new_password_is_taken_up_by_a_reload_and_another_database_waits_for_a_restart() {
    let redis = RedisServer::builder().line("user app on >old ~* &* +@all").start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let write = |password: &str, database: u8| {
        let url = format!("redis://app:{password}@{}/{database}", redis.address());
        fs::write(&path, format!("[store]\nurl = \"{url}\"\non_failure = \"deny\"\n"))
            .expect("the folder is ours");
    };
    write("old", 0);
    let flags = ["--config", path.to_str().expect("the folder's name is text")];
    let spile = Process::serve_with(&flags, &[Process::PATIENT, ("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    assert_eq!(reason(&spile), "ok");
    redis.command(&["ACL", "SETUSER", "app", "resetpass", ">new"]);
    redis.command(&["CLIENT", "KILL", "USER", "app"]);
    wait::until_true("the refusal to be told", || readiness(&spile).contains("WRONGPASS"));
    write("new", 0);
    spile.send(Signal::HUP);
    wait::until_true("decisions by the store", || reason(&spile) == "ok");
    wait::until_true("the registry", || {
        let plan = r#"{"capacity":5,"refill":"1/s"}"#;
        spile.ask("admin", "PUT", "/admin/v1/plans/gold", plan).starts_with("HTTP/1.1 20")
    });
    assert!(is_ready(&spile) && !spile.log().contains("store.url changed"), "{}", spile.log());
    write("new", 1);
    spile.send(Signal::HUP);
    spile.until_logged("store.url changed: a restart puts it in force");
    assert_eq!(reason(&spile), "ok", "the old database goes on");
    assert!(!spile.log().contains(":new@"), "{}", spile.log());
}
