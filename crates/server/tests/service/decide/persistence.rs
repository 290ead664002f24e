//! The embedded store with a file: what was spent stays spent.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use spile_testkit::wait;
use tempfile::TempDir;

use crate::support::Process;

/// A folder with a configuration whose buckets hardly refill, and servers that run on it one after the other.
struct Home(TempDir);

impl Home {
    fn new(save_every: &str) -> Self {
        let home = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(home.0.path().join("data")).expect("the folder is ours");
        let file = format!(
            "[store]\npath = \"data/buckets\"\nsave_every = \"{save_every}\"\n\
             [plans]\ndaily = {{ capacity = 1000, refill = \"1/day\" }}\n"
        );
        fs::write(home.config(), file).expect("the folder is ours");
        home
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("spile.toml")
    }

    fn buckets(&self) -> PathBuf {
        self.0.path().join("data/buckets")
    }

    fn serve(&self) -> Process {
        Process::serve(&["--config", text(&self.config())])
    }

    /// What is said by a server that does not start.
    fn refused(&self) -> String {
        let ports = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let output = Process::run(&[&["serve", "--config", text(&self.config())][..], &ports].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folder's name is text")
}

fn ask(spile: &Process, path: &str, cost: u32) -> u64 {
    let body = format!("{{\"identity\":\"somebody\",\"plans\":[\"daily\"],\"cost\":{cost}}}");
    let answer = spile.ask("http", "POST", path, &body);
    let json = answer.split_once("\r\n\r\n").map(|(_, body)| body).expect("an answer has a body");
    let json: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|why| panic!("{why}: {answer}"));
    json["remaining"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn spend(spile: &Process, cost: u32) -> u64 {
    ask(spile, "/v1/check", cost)
}

fn left(spile: &Process) -> u64 {
    ask(spile, "/v1/peek", 1)
}

fn saves(spile: &Process) -> f64 {
    spile.metric("ratelimit_store_saves_total{result=\"saved\"}").expect("saves are counted")
}

#[test]
fn a_drained_bucket_is_drained_after_a_restart() {
    let home = Home::new("1h");
    let spile = home.serve();
    assert_eq!(spend(&spile, 990), 10);
    let (status, _) = spile.end_by(Signal::TERM);
    assert_eq!(status.code(), Some(0));
    let spile = home.serve();
    spile.until_logged("buckets restored");
    assert_eq!(left(&spile), 10);
}

#[test]
fn a_killed_server_loses_only_what_was_spent_since_the_last_save() {
    // So often that nearly every kill hits a save under way.
    let home = Home::new("10ms");
    let mut least = 0;
    for round in 0..12 {
        let spile = home.serve();
        let there = 1_000 - left(&spile);
        assert!(there >= least, "round {round}: {least} were spent and saved, and {there} are");
        for _ in 0..20 {
            spend(&spile, 3);
        }
        let spent = 1_000 - left(&spile);
        assert_eq!(spent, there + 60);
        // The first to end may have begun before the last spend; the second has not.
        let before = saves(&spile);
        wait::until_true("two saves", || saves(&spile) >= before + 2.0);
        least = spent;
        for _ in 0..round {
            spend(&spile, 3);
        }
        spile.end_by(Signal::KILL);
    }
}

#[test]
fn two_servers_do_not_share_a_file() {
    let home = Home::new("1h");
    let _first = home.serve();
    let said = home.refused();
    assert!(said.contains("data/buckets are in use by another process"), "{said}");
}

#[test]
fn a_folder_that_is_not_there_is_said_at_the_start() {
    let home = Home::new("1h");
    fs::remove_dir(home.0.path().join("data")).expect("the folder is ours");
    let said = home.refused();
    assert!(said.contains("data/buckets") && said.contains("No such file or directory"), "{said}");
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let home = Home::new("1h");
    fs::write(home.buckets(), "my only copy of the thesis").expect("the folder is ours");
    let said = home.refused();
    assert!(said.contains("data/buckets") && said.contains("not a snapshot of buckets"), "{said}");
    assert_eq!(fs::read(home.buckets()).expect("it is there"), b"my only copy of the thesis");
}

#[test]
fn a_damaged_file_is_kept_aside_and_everybody_starts_full() {
    let home = Home::new("1h");
    let spile = home.serve();
    spend(&spile, 5);
    spile.end_by(Signal::TERM);
    let whole = fs::read(home.buckets()).expect("it was saved");
    let mut newer = whole.clone();
    newer[8] = 99;
    let (half, newer) = ((&whole[..whole.len() / 2], "damaged"), (&*newer, "format 99"));
    for (bytes, why) in [half, newer] {
        fs::write(home.buckets(), bytes).expect("the folder is ours");
        let spile = home.serve();
        assert_eq!(left(&spile), 1_000);
        spile.until_logged("EVERY BUCKET STARTS FULL");
        assert!(spile.log().contains(why), "{why} in {}", spile.log());
        let aside = home.0.path().join("data/buckets.unreadable");
        assert_eq!(fs::read(aside).expect("it was kept"), bytes);
    }
}

#[test]
fn a_disk_that_fails_later_is_logged_once_and_counted_and_decisions_go_on() {
    let home = Home::new("10ms");
    let spile = home.serve();
    let folder = home.0.path().join("data");
    fs::rename(&folder, home.0.path().join("elsewhere")).expect("the folder is ours");
    let failed = || spile.metric("ratelimit_store_saves_total{result=\"failed\"}").expect("it is counted");
    wait::until_true("three saves fail", || failed() >= 3.0);
    assert_eq!(spile.log().matches("buckets are not saved").count(), 1, "{}", spile.log());
    assert_eq!(spend(&spile, 5), 995);
    fs::create_dir(&folder).expect("the folder is ours");
    spile.until_logged("buckets are saved again");
    spile.end_by(Signal::TERM);
    assert_eq!(left(&home.serve()), 995);
}

#[test]
fn a_path_is_only_for_the_embedded_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spile.toml");
    fs::write(&file, "[store]\nurl = \"redis://localhost\"\npath = \"buckets\"\nsave_every = \"1ms\"\n")
        .expect("the folder is ours");
    let check = Process::run(&["config", "check", text(&file)]);
    let said = String::from_utf8_lossy(&check.stderr);
    assert_eq!(check.status.code(), Some(2));
    assert!(said.contains("spile.toml:3") && said.contains("for the embedded store"), "{said}");
    assert!(said.contains("`1ms` is out of bounds") && said.contains("10ms to 1h"), "{said}");
}
