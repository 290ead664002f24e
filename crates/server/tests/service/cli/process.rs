//! The binary itself: what it prints, and how it ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use crate::support::Process;

#[test]
fn it_says_where_it_listens_what_it_runs_on_and_what_to_try() {
    let spile = Process::serve(&[]);
    for words in
        ["memory:", "free (10, 1/s)", "pro (100, 50/s)", "enterprise (500, 200/s)", "curl -i http://"]
    {
        assert!(spile.banner.contains(words), "{words} in {}", spile.banner);
    }
    assert_ne!(spile.address("http"), spile.address("admin"));
}

#[test]
fn with_the_timeout_that_is_shipped_redis_decides_and_a_hanging_one_is_not_waited_for() {
    let redis = RedisServer::start();
    let spile = Process::serve(&["--store", &redis.url()]);
    let shipped = Process::run(&["config", "show"]);
    assert!(String::from_utf8_lossy(&shipped.stdout).contains("\ntimeout = \"50ms\"\n"));
    let ask = || {
        let asked = tokio::time::Instant::now();
        let answer =
            spile.ask("http", "POST", "/v1/check", r#"{"ruleId":"default","identity":"a","cost":0}"#);
        (answer.contains("x-ratelimit-degraded"), asked.elapsed())
    };
    wait::until_true("a decision by Redis", || !ask().0);
    redis.freeze();
    let waits: Vec<_> = (0..3).map(|_| ask()).collect();
    redis.thaw();
    assert!(waits.iter().all(|(by_policy, _)| *by_policy), "{waits:?}");
    // A busy machine may be late, but hardly three times in a row.
    assert!(waits.iter().any(|(_, waited)| *waited < Duration::from_millis(500)), "{waits:?}");
}

#[test]
fn it_ends_well_when_told_to() {
    for signal in [Signal::INT, Signal::TERM] {
        let (status, _) = Process::serve(&[]).end_by(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_taken_port_is_one_line_that_says_which() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("port 0 is always free");
    let address = taken.local_addr().expect("it is bound").to_string();
    assert_refused(&["serve", "--http", &address], &["cannot listen on", &address, "--http"]);
}

#[test]
fn a_bad_flag_is_one_line_that_names_it() {
    assert_refused(&["serve", "--htp", "127.0.0.1:0"], &["--htp"]);
    assert_refused(&["serve", "--http", "nowhere"], &["--http", "nowhere"]);
    assert_refused(&["serve", "--on-failure", "panic"], &["allow", "deny", "local"]);
    assert_refused(&["serve", "--store", "floppy:"], &["--store", "floppy:", "memory:"]);
    assert_refused(&["sevre"], &["sevre", "did you mean `serve`?"]);
    assert_refused(&["tenant", "lits"], &["lits", "did you mean `list`?", "see `spile tenant --help`"]);
    assert_refused(&["serve", "--gatway", ":0"], &["--gatway", "did you mean `--gateway`?"]);
    assert_refused(&["serve", "--log-format", "jsno"], &["jsno", "did you mean `json`?"]);
    assert_refused(&["check", "user:1"], &["--rule", "--plan"]);
    assert_refused(&["check", "user:1", "--rule", "a", "--plan", "b"], &["--rule", "--plan"]);
    assert_refused(&["health", "--admin", "localhost"], &["localhost", "HOST:PORT"]);
}

#[test]
fn help_and_version_are_no_errors() {
    let version = Process::run(&["--version"]);
    let tzdata = format!("\ntzdata:   {}\n", spile_calendar::tzdb_version());
    assert!(version.status.success() && String::from_utf8_lossy(&version.stdout).ends_with(&tzdata));
    let help = Process::run(&["serve", "--help"]);
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--http <ADDR>"));
}

#[track_caller]
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let output = Process::run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word} in {stderr}");
    }
}

#[test]
fn what_could_not_run_is_refused_at_the_start_and_by_check_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let file = path.to_str().expect("a path of text");
    for (text, words) in [
        ("[listen]\nadmin = \":8081\"\n", &["spile.toml:2:9", "0.0.0.0:8081", "SPILE_ADMIN_TOKEN"][..]),
        ("[listen]\ngrpc = \"localhost:8080\"\n", &["spile.toml:2:8", "`listen.http`", "`listen.grpc`"]),
        ("[[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:1\"\n", &["spile.toml:1:", "--gateway"]),
    ] {
        std::fs::write(&path, text).expect("the folder is ours");
        let commands: [&[&str]; 4] = [
            &["serve", "--config", file],
            &["config", "check", file],
            &["config", "check", "--config", file],
            &["config", "check", file, "--json"],
        ];
        for command in commands {
            let output = Process::run(command);
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
            assert!(words.iter().all(|word| text.contains(word)), "{command:?}: {words:?} in {text}");
        }
    }
    let output = Process::run(&["config", "check", file, "--gateway", "localhost:0"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Process::run(&["serve", "--admin", "0.0.0.0:0"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("flag --admin") && stderr.contains("SPILE_ADMIN_TOKEN"), "{stderr}");
}

#[test]
fn a_file_is_checked_and_shown_as_json_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    std::fs::write(&path, "[plans]\nfree = { refill = \"3/s\" }\n").expect("the folder is ours");
    let file = path.to_str().expect("a path of text");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = Process::run(&[arguments, &["--config", file, "--json"]].concat());
        serde_json::from_slice(&output.stdout).expect("it is JSON")
    };
    let checked = json(&["config", "check"]);
    assert_eq!(
        (&checked["works"], &checked["plans"], &checked["rules"]),
        (&true.into(), &3.into(), &1.into())
    );
    assert_eq!(json(&["config", "show"])["plans"]["free"]["refill"], "3/s");
}

#[test]
fn listeners_take_addresses_as_people_write_them() {
    let any = [("SPILE_LISTEN__HTTP", ":0"), ("SPILE_LISTEN__ADMIN", "localhost:0")];
    let spile = Process::serve_bare(&any);
    assert!(spile.address("http").starts_with("0.0.0.0:"), "{}", spile.banner);
    assert!(spile.address("admin").starts_with("127.0.0.1:"), "{}", spile.banner);
    assert!(spile.banner.contains("curl -i http://127.0.0.1:"), "{}", spile.banner);
}

#[test]
fn a_hangup_does_not_end_it() {
    let spile = Process::serve(&[]);
    spile.send(Signal::HUP);
    let (status, _) = spile.end_by(Signal::TERM);
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_store_that_is_lost_and_found_is_one_line_each_without_a_key() {
    let mut redis = RedisServer::start();
    let spile = Process::serve_with(&["--store", &redis.url()], &[("SPILE_STORE__TIMEOUT", "1s")]);
    let ask = || spile.ask("http", "POST", "/v1/check", r#"{"ruleId":"default","identity":"somebody"}"#);
    assert!(ask().contains("\"reason\":\"ok\""));
    let is = |state: &str| spile.metric(&format!("ratelimit_store_state{{state=\"{state}\"}}")) == Some(1.0);
    assert!(is("well"));
    redis.kill();
    wait::until_true("the store is lost", || {
        ask();
        is("lost")
    });
    redis.launch_again();
    wait::until_true("the store is found", || {
        ask();
        is("well")
    });
    let log = spile.log();
    assert_eq!((log.matches("store lost").count(), log.matches("store recovered").count()), (1, 1), "{log}");
    assert!(!log.contains("somebody"), "{log}");
    let lost = log.lines().find(|line| line.contains("store lost")).expect("it was logged");
    assert!(lost.contains("ERROR") && lost.contains("limits are NOT enforced (policy allow)"), "{lost}");
    let recovered = log.lines().find(|line| line.contains("store recovered")).expect("it was logged");
    let passed =
        recovered.split_once(": ").and_then(|(_, text)| text.split_once(" requests passed without a limit"));
    let passed = passed.and_then(|(text, _)| text.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(passed.is_some_and(|passed| passed > 0), "{recovered}");
    assert!(recovered.contains("0 were denied, 0 were decided by this instance alone"), "{recovered}");
}

/// Answers every request with 200 on a connection of its own.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            read_head(&mut stream);
            let _answered =
                stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        }
    });
    address
}

/// The status line and fields of what arrives next, without a body.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn a_gateway_without_descriptors_says_so_and_blames_no_upstream() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let route = format!("[[routes]]\npath = \"/\"\nupstream = \"http://{}\"\n", upstream());
    std::fs::write(&path, route).expect("a file");
    let path = path.to_str().expect("a path of text");
    let spile = Process::serve(&["--config", path, "--gateway", "127.0.0.1:0"]);
    let mut client = spile.connect("gateway");
    let mut ask = || {
        client.write_all(b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it reads");
        read_head(&mut client)
    };
    assert!(ask().starts_with("HTTP/1.1 200"));
    let before = spile.limit_descriptors(Some(0));
    // More in a row than it takes for an upstream to be left alone.
    for _ in 0..6 {
        let answer = ask().to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    }
    spile.until_logged("this machine cannot open another connection");
    spile.limit_descriptors(before);
    assert!(ask().starts_with("HTTP/1.1 200"), "it is not left alone");
    assert_eq!(spile.log().matches("cannot open another connection").count(), 1, "once a minute at most");
}
