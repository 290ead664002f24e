//! The audit log of the real process: who asked for which change, and what became of it.

use std::fs;
use std::io::Write;

use rustix::process::Signal;
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use crate::support::Process;

const FILE: &str = "[plans]\nfree = { capacity = 10, refill = \"1/s\" }\n";

/// The lines of the audit log that have all of these words, in order.
fn lines(spile: &Process, words: &[&str]) -> Vec<String> {
    let log = spile.log();
    let audit = log.lines().filter(|line| line.contains("spile::audit"));
    audit.filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}

fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("{name} in {line}"));
    rest.split(' ').next().unwrap_or_default()
}

/// Asks and waits until both lines are there: asked for once, and ended once, with the peer and the same number.
#[track_caller]
fn ask(spile: &Process, method: &str, path: &str, body: &str, words: &[&str], end: &str) {
    let before = lines(spile, words).len();
    spile.ask("admin", method, path, body);
    wait::until_true(&format!("{method} {path} in the audit log"), || {
        lines(spile, words).len() >= before + 2
    });
    let lines = lines(spile, words).split_off(before);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("asked for") && lines[1].contains(end), "{lines:?}");
    assert_eq!(field(&lines[0], "change"), field(&lines[1], "change"));
    for line in &lines {
        assert!(field(line, "peer").starts_with("127.0.0.1:"), "{line}");
    }
}

#[test]
fn each_change_and_each_refusal_is_in_the_log_once_with_its_peer_before_and_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spile.toml");
    fs::write(&file, FILE).expect("the folder is ours");
    let flags = ["--config", file.to_str().expect("the folder's name is text")];
    let spile = Process::serve_with(&flags, &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let gold = r#"{"capacity": 5, "refill": "1/s"}"#;
    let named = r#"{"name": "silver", "capacity": 5, "refill": "1/s"}"#;
    let nameless = r#"kind="plans" name="""#;
    let reload = ["action=\"reload\"", "peer=127"];
    for (method, path, body, words, end) in [
        ("PUT", "plans/gold", gold, &["put", "plans", "\"gold\""][..], "changed"),
        ("PUT", "plans/bad", r#"{"capacity": 0}"#, &["put", "plans", "\"bad\""], "refused"),
        ("PUT", "plans/worse", "{", &["put", "plans", "\"worse\""], "refused"),
        ("POST", "plans", named, &["create", "plans", "\"silver\""], "changed"),
        ("POST", "plans", named, &["create", "plans", "\"silver\""], "refused"),
        ("POST", "plans", "[]", &["create", nameless], "refused"),
        ("PUT", "rules/writes", r#"{"plans": ["gold"]}"#, &["put", "rules", "\"writes\""], "changed"),
        (
            "PUT",
            "tenants/gr%C3%B6%C3%9Fe",
            r#"{"plan": "gold"}"#,
            &["put", "tenants", "\"größe\""],
            "changed",
        ),
        ("POST", "tenants/gr%C3%B6%C3%9Fe/keys", "", &["add key", "\"größe\""], "changed"),
        ("DELETE", "plans/gold", "", &["delete", "plans", "\"gold\""], "refused"),
        ("DELETE", "rules/writes", "", &["delete", "rules", "\"writes\""], "changed"),
        ("DELETE", "rules/nothing", "", &["delete", "rules", "\"nothing\""], "refused"),
        ("DELETE", "buckets/user:secret?plan=free", "", &["reset", "buckets", "plan=\"free\""], "changed"),
        ("DELETE", "buckets/user:secret?plan=none", "", &["reset", "buckets", "plan=\"none\""], "refused"),
        ("POST", "config/reload", "", &reload, "changed"),
    ] {
        ask(&spile, method, &format!("/admin/v1/{path}"), body, words, end);
    }
    spile.send(Signal::HUP);
    wait::until_true("the signal in the log", || lines(&spile, &["reload", "SIGHUP"]).len() >= 2);
    fs::write(&file, "[plans]\nfree = 1\n").expect("the folder is ours");
    wait::until_true("the file in the log", || lines(&spile, &["reload", "peer=file"]).len() >= 2);
    let [asked, refused] = &lines(&spile, &["reload", "peer=file"])[..2] else {
        unreachable!("there are two")
    };
    assert!(asked.contains("asked for") && refused.contains("refused"), "{asked}, {refused}");
    ask(&spile, "POST", "/admin/v1/config/reload", "", &reload, "refused");
    spile.ask_with("admin", "DELETE", "/admin/v1/buckets/user:secret", &[], "");
    wait::until_true("the stranger in the log", || {
        lines(&spile, &["no or wrong token", "DELETE"]).len() == 1
    });
    assert!(!spile.log().contains("user:secret"), "{}", spile.log());
}

#[test]
fn a_change_whose_client_hangs_up_is_in_the_log_before_its_effect_and_is_carried_through() {
    let redis = RedisServer::start();
    let url = redis.url();
    let spile = Process::serve_with(&["--store", &url], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    for _ in 0..3 {
        spile.ask("http", "POST", "/v1/check", r#"{"identity":"ann","plans":["free"],"cost":3}"#);
    }
    let bucket = || spile.ask("admin", "GET", "/admin/v1/buckets/ann?plan=free", "");
    assert!(bucket().contains("\"tokens\":1,"), "{}", bucket());
    redis.freeze();
    let mut caller = spile.connect("admin");
    let token = Process::TOKEN;
    write!(
        caller,
        "DELETE /admin/v1/buckets/ann?plan=free HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
    )
    .expect("it listens");
    spile.until_logged("asked for");
    drop(caller);
    assert_eq!(lines(&spile, &["reset", "changed"]).len(), 0, "nothing has changed yet");
    redis.thaw();
    wait::until_true("the reset", || lines(&spile, &["reset", "changed"]).len() == 1);
    assert!(bucket().contains("\"tokens\":10,"), "{}", bucket());
}
