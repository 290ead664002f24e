//! What a replay reads, says and draws.

use std::io::Write;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::LogFolder;
use crate::support::Process;

const CONFIG: &str = r#"
[plans]
free = { capacity = 2, refill = "2/s" }
[[rules]]
id = "default"
key = ["ip"]
plans = ["free"]
"#;

/// Lines of the combined format: an address and the second of the minute.
fn combined(lines: &[(&str, u32)]) -> String {
    let line = |(address, second): &(&str, u32)| {
        format!(
            "{address} - - [15/Nov/2026:10:00:{second:02} +0100] \"GET /a HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
        )
    };
    lines.iter().map(line).collect()
}

#[test]
fn a_concurrency_never_denies_and_the_limits_beside_it_do() {
    let config = r#"
[plans.jobs]
limits = [{ name = "atonce", concurrency = 1 }, { name = "rate", capacity = 4, refill = "1/h" }]
[[rules]]
id = "default"
key = ["ip"]
plans = ["jobs"]
"#;
    let report = LogFolder::new(combined(&[("203.0.113.7", 1); 6]), config).report(&["--no-spread"]);
    assert_eq!((&report["allowed"], &report["limited"]), (&4.into(), &2.into()), "{report}");
    assert_eq!(report["rules"][0]["limits"][0]["name"], "jobs/rate");
}

#[test]
fn who_was_limited_when_and_by_which_rule_is_a_table() {
    let log = combined(&[("203.0.113.7", 1); 5]) + &combined(&[("203.0.113.8", 2), ("2001:db8::1", 3)]);
    let folder = LogFolder::new(log, CONFIG);
    let table = folder.prints(&[]);
    for words in [
        "7 lines, 2026-11-15 09:00:01 to 2026-11-15 09:00:03 UTC (2s)",
        "7 requests: 5 (71%) allowed, 2 (28%) limited",
        "RULE     MODE     REQUESTS  LIMITED  SHARE",
        "default  enforce         7        2    28%",
        "LIMIT  RULE     LIMITED  LONGEST WAIT",
        "ip:203.0.113.7  default        2  2026-11-15 09:00:01  2026-11-15 09:00:01",
        "spread evenly",
    ] {
        assert!(table.contains(words), "{words} in\n{table}");
    }
    let together = folder.report(&["--no-spread"]);
    assert_eq!((&together["limited"], &together["allowed"]), (&3.into(), &4.into()), "{together}");
    assert_eq!(together["rules"][0]["limits"][0]["name"], "free");
    assert_eq!(together["keys"][0]["key"], "ip:203.0.113.7");
    let intervals = &together["intervals"];
    assert_eq!((&together["intervalSeconds"], &intervals["limited"][0]), (&1.into(), &3.into()));
}

#[test]
fn gzip_pipes_and_several_files_are_read_in_turn() {
    let (one, other) = (combined(&[("203.0.113.7", 1); 3]), combined(&[("203.0.113.7", 1); 3]));
    let folder = LogFolder::new(one.clone(), CONFIG);
    let mut zip = GzEncoder::new(Vec::new(), Compression::default());
    zip.write_all(other.as_bytes()).expect("memory takes it");
    folder.write("other.gz", zip.finish().expect("memory takes it"));
    let report = folder.report(&[&folder.path("other.gz"), "--no-spread"]);
    assert_eq!((&report["requests"], &report["limited"]), (&6.into(), &4.into()));
    let config = folder.path("spile.toml");
    let mut child = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["replay", "-", "--no-spread", "--json", "--config", &config])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built with the tests");
    child.stdin.take().expect("it is piped").write_all(one.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"limited\":1"));
}

#[test]
fn bad_lines_are_counted_and_the_first_are_shown_and_only_bad_ones_fail() {
    let bad = "hello\n{\"ts\":1}\n\n\u{1b}[2Jx\n".to_owned();
    let folder = LogFolder::new(bad.clone() + &combined(&[("203.0.113.7", 1)]), CONFIG);
    let table = folder.prints(&[]);
    assert!(table.contains("3 of 4 lines could not be read: "), "{table}");
    assert!(table.contains("access.log, line 1: there is no time in brackets"), "{table}");
    assert!(table.contains("access.log, line 2: it has no field for the uri"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");
    folder.write("access.log", bad);
    let why = folder.complains(&[]);
    assert!(why.contains("none of 3 lines can be read") && why.contains("line 1: there is no time"), "{why}");
    folder.write("access.log", "");
    assert!(folder.complains(&[]).contains("the log has no lines"));
}

#[test]
fn lines_out_of_order_do_not_turn_the_clock_back() {
    let log = combined(&[("203.0.113.7", 1), ("203.0.113.7", 9), ("203.0.113.7", 2), ("203.0.113.7", 3)]);
    let folder = LogFolder::new(log, CONFIG);
    let table = folder.prints(&["--no-spread"]);
    assert!(table.contains("2 lines are earlier than one before, by up to 7s"), "{table}");
    assert!(!table.contains("Sort the log"), "{table}");
    // All three are decided at the ninth second, and the bucket holds two.
    assert_eq!(folder.report(&["--no-spread"])["limited"], 1);
}

#[test]
fn what_rules_need_and_the_log_lacks_is_said() {
    let config = r#"
[[rules]]
id = "api"
key = ["header:x-api-key", "ip"]
plans = ["free"]
[[rules]]
id = "shop"
match = { path = "/a", hosts = ["shop.example"] }
key = ["principal"]
plans = ["free"]
"#;
    let folder = LogFolder::new(combined(&[("203.0.113.7", 1); 3]), config);
    let table = folder.prints(&[]);
    for words in [
        "rule `api` keys by header x-api-key, which the log does not have: 3 requests were keyed by address",
        "rule `shop` is for certain hosts, and the log has none: `--host NAME`",
    ] {
        assert!(table.contains(words), "{words} in\n{table}");
    }
    let table = folder.prints(&["--host", "Shop.example:443"]);
    assert!(
        table.contains("rule `shop` keys by principal, which the log does not have: 3 requests were refused"),
        "{table}"
    );
}

#[test]
fn an_api_key_is_a_fact_and_is_never_shown() {
    let line = |second| {
        format!(
            "{{\"at\":\"2026-11-15T10:00:0{second}.5Z\",\"key\":\"k-secret\",\"who\":{{\"t\":\"acme\"}},\"method\":\"GET\",\"path\":\"/\"}}\n"
        )
    };
    let log: String = [1, 1, 1, 2].map(line).concat();
    let config = "[[rules]]\nid = \"default\"\nkey = [\"header:x-api-key\"]\nplans = [\"tiny\"]\n[plans]\ntiny = { capacity = 1, refill = \"1/m\" }\n";
    let folder = LogFolder::new(log, config);
    let files = ["limited.csv", "picture.svg", "picture.html"].map(|name| folder.path(name));
    let flags = ["--field", "time=at", "--header", "x-api-key=key"];
    let written = ["--csv", &files[0], "--svg", &files[1], "--html", &files[2]];
    let table = folder.prints(&[&flags[..], &written].concat());
    assert!(table.contains("sha256:") && table.contains("3 (75%) limited"), "{table}");
    for text in [table, folder.read("limited.csv"), folder.read("picture.svg"), folder.read("picture.html")] {
        assert!(text.contains("sha256:") && !text.contains("k-secret"), "{text}");
    }
    let by_tenant = folder.report(&["--field", "time=at", "--field", "tenant=who.t"]);
    assert_eq!(by_tenant["refused"], 4, "the rule keys by a header that is not told of: {by_tenant}");
}

#[test]
fn configurations_are_compared_side_by_side() {
    let folder = LogFolder::new(combined(&[("203.0.113.7", 1); 5]), CONFIG);
    folder.write("wide.toml", CONFIG.replace("capacity = 2", "capacity = 9"));
    let (wide, csv) = (folder.path("wide.toml"), folder.path("limited.csv"));
    let table = folder.prints(&["--no-spread", "--config", &wide, "--csv", &csv]);
    assert!(table.contains("2 (40%) allowed, 3 (60%) limited"), "{table}");
    assert!(table.contains("5 (100%) allowed, 0 (0%) limited"), "{table}");
    let rows = folder.read("limited.csv");
    assert!(
        rows.starts_with("config,time,file,line,outcome,rule,limit,key,retry_after_ms,method,path\n"),
        "{rows}"
    );
    assert_eq!(rows.lines().count(), 4, "{rows}");
}

#[test]
fn wrong_usage_is_one_line_that_names_it() {
    let folder = LogFolder::new(combined(&[("203.0.113.7", 1)]), CONFIG);
    let log = folder.path("access.log");
    for (flags, words) in [
        (&["--csv", &log][..], "is read, and cannot be written to"),
        (&["--field", "when=ts"], "there is no fact `when`: write one of time, address"),
        (&["--field", "time"], "the name of a JSON field"),
        (&["--header", "a b=c"], "`a b` is not the name of a header"),
        (&["--host", "a b"], "is not a host"),
        (&["--svg", "/no/such/folder/a.svg"], "cannot write /no/such/folder/a.svg"),
        (&["/no/such.log"], "cannot read /no/such.log"),
        (&["/tmp"], "it is a folder"),
        (&["--top", "0"], "--top"),
    ] {
        let why = folder.complains(flags);
        assert!(why.contains(words) && why.lines().count() == 1, "{flags:?}: {why}");
    }
    assert_eq!(folder.read("access.log"), combined(&[("203.0.113.7", 1)]), "the log is as it was");
    let without = Process::run(&["replay", &log]);
    assert!(String::from_utf8_lossy(&without.stderr).contains("--config"));
}
