//! The configuration changes while the real process runs: by signal, by file, and as Kubernetes does it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use spile_testkit::wait;
use tempfile::TempDir;

use crate::support::Process;

fn file(capacity: u32) -> String {
    format!("[plans]\nfree = {{ capacity = {capacity}, refill = \"1/s\" }}\n")
}

/// A folder for a file that the test changes.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).expect("the folder is ours");
    }
}

fn serve(path: &Path) -> Process {
    Process::serve(&["--config", path.to_str().expect("the folder's name is text")])
}

fn capacity(spile: &Process) -> u64 {
    let answer = spile.ask("http", "POST", "/v1/peek", r#"{"identity":"a","plans":["free"]}"#);
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"));
    body["limit"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn reloads(spile: &Process, result: &str) -> f64 {
    let series = format!("ratelimit_config_reloads_total{{result=\"{result}\"}}");
    spile.metric(&series).expect("reloads are counted")
}

#[test]
fn a_hangup_reads_the_file_again() {
    let home = Home::new();
    home.write("spile.toml", &file(10));
    let spile = serve(&home.at("spile.toml"));
    for count in 1..=3_u8 {
        spile.send(Signal::HUP);
        wait::until_true("a reload", || (reloads(&spile, "applied") - f64::from(count)).abs() < 0.5);
    }
    wait::until_true("three reloads in the log", || {
        spile.log().matches("configuration applied").count() == 3
    });
}

#[test]
fn a_file_that_changes_is_read_again_without_being_told() {
    let home = Home::new();
    home.write("spile.toml", &file(10));
    let spile = serve(&home.at("spile.toml"));
    assert_eq!(capacity(&spile), 10);
    home.write("spile.toml", &file(20));
    wait::until_true("20 tokens", || capacity(&spile) == 20);
    // As editors do it: a new file takes the place of the old.
    home.write("spile.toml.new", &file(30));
    fs::rename(home.at("spile.toml.new"), home.at("spile.toml")).expect("the folder is ours");
    wait::until_true("30 tokens", || capacity(&spile) == 30);
}

#[test]
fn a_file_that_is_emptied_takes_no_limit_away() {
    let home = Home::new();
    home.write("spile.toml", &file(10));
    let spile = serve(&home.at("spile.toml"));
    for nothing in ["", "\n# nothing\n"] {
        let before = reloads(&spile, "refused");
        home.write("spile.toml", nothing);
        wait::until_true("a refusal", || reloads(&spile, "refused") > before);
        assert_eq!(capacity(&spile), 10);
    }
    assert!(spile.log().contains("is empty now, and had settings before"), "{}", spile.log());
    home.write("spile.toml", &file(20));
    wait::until_true("20 tokens", || capacity(&spile) == 20);
}

#[test]
fn kubernetes_swaps_a_symlink_and_the_new_file_holds() {
    let home = Home::new();
    for (version, tokens) in [("..1", 10), ("..2", 20)] {
        fs::create_dir(home.at(version)).expect("the folder is ours");
        home.write(&format!("{version}/spile.toml"), &file(tokens));
    }
    symlink("..1", home.at("..data")).expect("the folder is ours");
    symlink("..data/spile.toml", home.at("spile.toml")).expect("the folder is ours");
    let spile = serve(&home.at("spile.toml"));
    assert_eq!(capacity(&spile), 10);
    symlink("..2", home.at("..data_tmp")).expect("the folder is ours");
    fs::rename(home.at("..data_tmp"), home.at("..data")).expect("the folder is ours");
    fs::remove_dir_all(home.at("..1")).expect("the folder is ours");
    wait::until_true("20 tokens", || capacity(&spile) == 20);
}

#[test]
fn a_bad_file_is_refused_once_with_its_reason_and_the_old_one_stays() {
    let home = Home::new();
    home.write("spile.toml", &file(10));
    let spile = serve(&home.at("spile.toml"));
    home.write("spile.toml", "[plans]\nfree = { capacity = 0, refill = \"1/s\" }\n");
    wait::until_true("a refusal", || reloads(&spile, "refused") > 0.0);
    assert_eq!(capacity(&spile), 10);
    spile.until_logged("capacity 0 is outside 1 to 1000000000");
    fs::remove_file(home.at("spile.toml")).expect("the folder is ours");
    home.write("spile.toml", &file(20));
    wait::until_true("20 tokens", || capacity(&spile) == 20);
    assert!((reloads(&spile, "refused") - 1.0).abs() < 0.5, "one bad file is refused once");
}

#[test]
fn a_thousand_rules_and_a_hundred_thousand_tenants_are_read_again() {
    let home = Home::new();
    let large = |tokens| {
        let rule =
            |n| format!("[[rules]]\nid = \"r{n}\"\nmatch = {{ path = \"/r{n}/*\" }}\nplans = [\"free\"]\n");
        let tenant =
            |n| format!("[[tenants]]\nid = \"t{n}\"\nplan = \"free\"\napi_keys = [\"sha256:{n:064x}\"]\n");
        let parts = std::iter::once(file(tokens)).chain((0..1_000).map(rule));
        parts.chain((0..100_000).map(tenant)).collect::<String>()
    };
    home.write("spile.toml", &large(10));
    let spile = serve(&home.at("spile.toml"));
    home.write("spile.toml", &large(20));
    wait::until_true("20 tokens", || capacity(&spile) == 20);
}
