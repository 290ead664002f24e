//! A whole spile.toml in the real process: every table does what its comments say.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use serde_json::Value;
use spile_testkit::redis::RedisServer;
use tempfile::TempDir;

use crate::support::Process;

const EVERYTHING: &str = include_str!("everything.toml");
/// What the tenant's hash is the hash of.
const ACME_KEY: &str = "test";

/// The file, a Redis, something behind the gateway, and the process that runs on them.
struct Example {
    spile: Process,
    redis: RedisServer,
    _folder: TempDir,
}

impl Example {
    fn start(variables: &[(&str, &str)]) -> Self {
        let (redis, folder) = (RedisServer::start(), tempfile::tempdir().expect("a folder"));
        let file = EVERYTHING
            .replace("redis://127.0.0.1:6379", &redis.url())
            .replace("http://127.0.0.1:9000", &format!("http://{}", upstream()));
        fs::write(folder.path().join("spile.toml"), file).expect("the folder is ours");
        fs::write(folder.path().join("admin.token"), Process::TOKEN).expect("the folder is ours");
        let path = folder.path().join("spile.toml");
        let path = path.to_str().expect("the folder's name is text");
        let spile = Process::serve_with(
            &["--config", path, "--gateway", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
            &[&[Process::PATIENT], variables].concat(),
        );
        Self { spile, redis, _folder: folder }
    }

    fn check(&self, question: &str) -> Value {
        json(&self.spile.ask("http", "POST", "/v1/check", question))
    }

    /// Whether a request from that client would pass, as a proxy asks.
    fn auth(&self, method: &str, path: &str, client: &str, more: &[(&str, &str)]) -> String {
        let mut headers =
            vec![("x-forwarded-method", method), ("x-forwarded-uri", path), ("x-forwarded-for", client)];
        headers.extend_from_slice(more);
        self.spile.ask_with("http", "GET", "/v1/auth", &headers, "")
    }
}

fn json(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"))
}

#[track_caller]
fn assert_starts(answer: &str, start: &str) {
    assert!(answer.starts_with(start), "{start} before {answer}");
}

/// Answers every request with its own first line, until the test ends.
fn upstream() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for caller in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&caller).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            let _header: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let length = first.len();
            // Whoever has gone does not read.
            let _answered = write!(
                &caller,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{first}"
            );
        }
    });
    address
}

#[test]
fn listen_opens_what_it_names() {
    let example = Example::start(&[]);
    let ask = |listener, path| example.spile.ask(listener, "GET", path, "");
    assert_starts(&ask("http", "/api/ping"), "HTTP/1.1 200");
    for path in ["/livez", "/readyz", "/metrics", "/dashboard", "/openapi.json"] {
        assert_starts(&ask("admin", path), "HTTP/1.1 200");
    }
    assert_starts(&ask("gateway", "/nowhere"), "HTTP/1.1 404");
    let mut client = example.spile.connect("resp");
    client.write_all(b"PING\r\nQUIT\r\n").expect("it reads");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut client, &mut answer).expect("it answers");
    assert_eq!(answer, "+PONG\r\n+OK\r\n");
    assert!(example.spile.banner.contains("envoy.service.ratelimit.v3.RateLimitService"));
}

#[test]
fn admin_is_opened_by_the_token_in_its_file() {
    let example = Example::start(&[]);
    let plans = json(&example.spile.ask("admin", "GET", "/admin/v1/plans", ""));
    assert_eq!(plans["plans"].as_array().map(Vec::len), Some(6), "{plans}");
    assert_starts(&example.spile.ask_with("admin", "GET", "/admin/v1/plans", &[], ""), "HTTP/1.1 401");
}

#[test]
fn plans_hold_what_they_say_and_a_chain_is_charged_whole() {
    let example = Example::start(&[]);
    for (plan, capacity) in [("free", 10), ("pro", 100), ("enterprise", 500), ("login", 5)] {
        let decision = example.check(&format!("{{\"identity\":\"ann\",\"plans\":[\"{plan}\"]}}"));
        assert_eq!(decision["limit"], capacity, "{decision}");
    }
    let gold = r#"{"identity":"bob","plans":["gold"],"cost":10}"#;
    assert_eq!(example.check(gold)["allowed"], true);
    let denied = example.check(gold);
    assert_eq!(denied["limitedBy"], "gold/burst", "{denied}");
    assert_eq!(denied["limits"][1]["remaining"], 9_990, "the daily limit was not charged: {denied}");
}

#[test]
fn rules_find_who_pays_how_much_and_under_which_plan() {
    let example = Example::start(&[]);
    for _ in 0..5 {
        assert_starts(&example.auth("POST", "/login", "203.0.113.7", &[]), "HTTP/1.1 200");
    }
    assert_starts(&example.auth("POST", "/login", "203.0.113.7", &[]), "HTTP/1.1 429");
    let other = example.auth("POST", "/login", "203.0.113.8", &[]);
    assert_starts(&other, "HTTP/1.1 200");
    let reading = example.auth("GET", "/login", "203.0.113.7", &[]);
    assert!(reading.contains("x-ratelimit-limit: 10\r"), "the default rule, on the plan free: {reading}");
    let acme = [("x-api-key", ACME_KEY)];
    let writing = example.auth("POST", "/scores/7", "203.0.113.9", &acme);
    assert!(writing.contains("x-ratelimit-limit: 100\r"), "the tenant's plan: {writing}");
    assert!(writing.contains("x-ratelimit-remaining: 95\r"), "a write costs five: {writing}");
}

#[test]
fn clients_are_told_apart_by_the_address_that_trusted_proxies_name() {
    let example = Example::start(&[]);
    for _ in 0..5 {
        assert_starts(&example.auth("POST", "/login", "2001:db8::1", &[]), "HTTP/1.1 200");
    }
    assert_starts(&example.auth("POST", "/login", "2001:db8::2", &[]), "HTTP/1.1 429");
    assert_starts(&example.auth("POST", "/login", "2001:db8:0:1::1", &[]), "HTTP/1.1 200");
}

#[test]
fn the_route_forwards_whoever_has_a_key_and_keeps_the_path() {
    let example = Example::start(&[]);
    let get = |headers: &[(&str, &str)]| example.spile.ask_with("gateway", "GET", "/scores/7", headers, "");
    assert_starts(&get(&[]), "HTTP/1.1 401");
    let answer = get(&[("x-api-key", ACME_KEY)]);
    assert_starts(&answer, "HTTP/1.1 200");
    assert!(answer.ends_with("GET /scores/7 HTTP/1.1"), "{answer}");
}

#[test]
fn the_store_is_the_one_that_is_named_and_rules_say_what_happens_without_it() {
    let mut example = Example::start(&[("SPILE_STORE__TIMEOUT", "1s")]);
    example.check(r#"{"identity":"ann","plans":["free"]}"#);
    assert_eq!(example.redis.command(&["EXISTS", "spile:{ann}:free"]).int(), 1, "the prefix is spile");
    example.redis.kill();
    let open = example.check(r#"{"ruleId":"default","identity":"ann"}"#);
    assert_eq!((&open["allowed"], &open["reason"]), (&true.into(), &"fail_open".into()), "{open}");
    let closed = example.spile.ask("http", "POST", "/v1/check", r#"{"ruleId":"login","identity":"ann"}"#);
    assert_starts(&closed, "HTTP/1.1 503");
    assert!(closed.contains("retry-after: 1\r") && closed.contains("fail_closed"), "{closed}");
}

#[test]
fn each_of_three_replicas_enforces_a_third_where_the_policy_is_local() {
    let variables = [("SPILE_STORE__TIMEOUT", "1s"), ("SPILE_STORE__ON_FAILURE", "local")];
    let mut example = Example::start(&variables);
    example.redis.kill();
    let question = r#"{"identity":"ann","plans":["login"]}"#;
    let decision = example.check(question);
    assert_eq!((&decision["reason"], &decision["limit"]), (&"local".into(), &1.into()), "{decision}");
    assert_eq!(example.check(question)["allowed"], false, "five tokens are one for each of three");
}
