//! The commands that ask a store itself, with no server in between, and that they end as they do through one.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use spile_testkit::redis::RedisServer;
use tempfile::TempDir;

use crate::support::Process;

const FILE: &str = r#"
[plans]
free = { capacity = 10, refill = "10/day" }
[plans.gold]
limits = [
  { name = "burst", capacity = 20, refill = "20/day" },
  { name = "daily", capacity = 5, refill = "5/day" },
]
[[rules]]
id = "login"
plans = ["free"]
cost = 4
"#;

/// A store, a configuration, and the flags that name both.
struct Desk {
    folder: TempDir,
    flags: Vec<String>,
}

impl Desk {
    fn new(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("spile.toml"), FILE).expect("the folder is ours");
        let config = folder.path().join("spile.toml").to_str().expect("its name is text").to_owned();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).chain(["--config".to_owned(), config]);
        Self { flags: flags.collect(), folder }
    }

    fn on_a_file() -> Self {
        let mut desk = Self::new(&[]);
        desk.flags.extend(["--path".to_owned(), desk.buckets().to_str().expect("text").to_owned()]);
        desk
    }

    fn buckets(&self) -> PathBuf {
        self.folder.path().join("buckets")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Process::run(&[arguments, &flags].concat())
    }

    #[track_caller]
    fn says(&self, arguments: &[&str], code: i32, words: &str) -> String {
        let output = self.run(arguments);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {words} in {text}");
        text
    }

    #[track_caller]
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let text = self.says(&[arguments, &["--json"]].concat(), code, "");
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }
}

/// What is asked one after the other, how the command ends, and what it says.
const TABLE: [(&[&str], i32, &str); 16] = [
    (&["check", "ann", "--plan", "free", "--cost", "7"], 0, "allowed: 3 of 10 tokens left"),
    (&["peek", "ann", "--plan", "free", "--cost", "3"], 0, "allowed: 3 of 10 tokens left"),
    (&["peek", "ann", "--plan", "free", "--cost", "4"], 1, "denied by free"),
    (&["check", "ann", "--rule", "login"], 1, "denied by free: 3 of 10 tokens left"),
    (&["check", "ann", "--plan", "gold", "--plan", "free"], 0, "allowed: 2 of 10 tokens left"),
    (&["inspect", "ann", "--plan", "gold"], 0, "19/20   20/day"),
    (&["reset", "ann", "--plan", "free"], 0, "full again"),
    (&["check", "ann", "--rule", "login"], 0, "allowed: 6 of 10 tokens left"),
    (&["reset", "ann"], 0, "full again"),
    (&["inspect", "ann"], 0, "5/5 "),
    (&["check", "ann", "--plan", "free", "--cost", "11"], 2, "cost 11 is above 10"),
    (&["check", "ann", "--plan", "nope"], 2, "no plan is called \"nope\""),
    (&["check", "ann", "--rule", "nope"], 2, "no rule has the id \"nope\""),
    (&["peek", "", "--plan", "free"], 2, "the key is empty"),
    (&["inspect", "ann", "--plan", "nope"], 2, "no plan is called \"nope\""),
    (&["reset", "\u{85}", "--plan", "free"], 2, "U+0085"),
];

#[test]
fn redis_is_asked_and_the_exit_code_says_how_it_went() {
    let redis = RedisServer::start();
    let desk = Desk::new(&["--store", &redis.url()]);
    for (arguments, code, words) in TABLE {
        desk.says(arguments, code, words);
    }
}

#[test]
fn a_file_is_asked_and_the_exit_code_says_how_it_went() {
    let desk = Desk::on_a_file();
    for (arguments, code, words) in TABLE {
        desk.says(arguments, code, words);
    }
}

/// The same through a server, so that nobody has to know which of the two answered.
#[test]
fn a_server_is_asked_and_the_exit_code_says_how_it_went() {
    let desk = Desk::new(&[]);
    let spile = Process::serve_with(&["--config", &desk.flags[1]], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let (http, admin) = (format!("http://{}", spile.address("http")), spile.address("admin"));
    let admin = format!("http://{admin}");
    let variables = [
        ("SPILE_SERVER", http.as_str()),
        ("SPILE_ADMIN", admin.as_str()),
        ("SPILE_ADMIN_TOKEN", Process::TOKEN),
    ];
    for (arguments, code, words) in TABLE {
        let output = Process::run_with(arguments, &variables);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {words} in {text}");
    }
}

#[test]
fn every_answer_comes_as_json_too() {
    let redis = RedisServer::start();
    let desk = Desk::new(&["--store", &redis.url()]);
    let decision = desk.json(&["check", "ann", "--plan", "gold", "--cost", "5"], 0);
    assert_eq!((&decision["allowed"], &decision["remaining"]), (&true.into(), &0.into()), "{decision}");
    let denied = desk.json(&["peek", "ann", "--plan", "gold"], 1);
    assert_eq!(denied["limitedBy"], "gold/daily", "{denied}");
    let shown = desk.json(&["inspect", "ann"], 0);
    let bucket = |limit: &str| {
        let buckets = shown["buckets"].as_array().into_iter().flatten();
        buckets.into_iter().find(|bucket| bucket["limit"] == limit).cloned().expect("every limit is shown")
    };
    assert_eq!(bucket("gold/daily")["tokens"], 0);
    assert_eq!(bucket("gold/daily")["level"].as_f64().map(|level| level < 0.001), Some(true));
    let day = 86_400_000;
    let ttl = bucket("gold/daily")["ttlMs"].as_u64().expect("Redis says how long it keeps it");
    assert!((2 * day - 60_000..=2 * day).contains(&ttl), "{ttl}");
    let full = bucket("gold/burst")["resetAfterMs"].as_u64().expect("it says when it is full");
    assert!((day / 4 - 60_000..=day / 4).contains(&full), "{full}");
    assert_eq!(bucket("free")["ttlMs"], Value::Null, "nobody has spent from it");
    assert_eq!(desk.json(&["reset", "ann"], 0)["reset"], true);
}

#[test]
fn redis_shows_how_long_it_keeps_a_bucket() {
    let redis = RedisServer::start();
    let desk = Desk::new(&["--store", &redis.url()]);
    desk.says(&["check", "ann", "--plan", "free", "--cost", "5"], 0, "allowed");
    let shown = desk.says(&["inspect", "ann", "--plan", "free"], 0, "5/10    10/day  11h 59m");
    assert!(shown.contains("██████████░░░░░░░░░░") && shown.contains("1day 23h"), "{shown}");
}

#[test]
fn without_a_configuration_the_usual_plans_hold() {
    let redis = RedisServer::start();
    let output = Process::run(&["check", "ann", "--plan", "enterprise", "--store", &redis.url()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("allowed: 499 of 500"), "{said}");
}

#[test]
fn a_store_that_does_not_answer_is_an_error_and_no_decision() {
    let desk = Desk::new(&["--store", "redis://127.0.0.1:1"]);
    for command in [&["check", "ann", "--plan", "free"][..], &["inspect", "ann"], &["reset", "ann"]] {
        desk.says(command, 2, "the store does not answer");
    }
}

#[test]
fn a_file_in_use_can_be_looked_at_and_not_changed() {
    let desk = Desk::on_a_file();
    desk.says(&["check", "ann", "--plan", "free", "--cost", "7"], 0, "allowed");
    let path = desk.buckets();
    let path = path.to_str().expect("text");
    let spile = Process::serve_with(&["--config", &desk.flags[1]], &[("SPILE_STORE__PATH", path)]);
    desk.says(&["peek", "ann", "--plan", "free"], 0, "allowed: 3 of 10");
    desk.says(&["inspect", "ann", "--plan", "free"], 0, "3/10");
    desk.says(&["check", "ann", "--plan", "free"], 2, "in use by another process");
    spile.end_by(Signal::TERM);
    desk.says(&["check", "ann", "--plan", "free"], 0, "allowed: 2 of 10");
}

#[test]
fn the_memory_of_another_process_cannot_be_asked() {
    let desk = Desk::new(&["--store", "memory:"]);
    desk.says(&["inspect", "ann"], 2, "in the server's own memory");
}
