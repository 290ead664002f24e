//! `AUTH`, where a password is configured.

use std::fs;

use rustix::process::Signal;
use spile_server::Config;
use spile_testkit::wait;

use super::client::Client;
use crate::support::{Process, Spile};

const PASSWORD: &str = "correct horse battery staple";

async fn guarded() -> Spile {
    let variables = [("SPILE_RESP_PASSWORD", PASSWORD), ("SPILE_LISTEN__RESP", "127.0.0.1:0")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Spile::start_with(Config::from_environment(variables).expect("it works")).await
}

#[tokio::test]
async fn nothing_is_answered_before_the_password() {
    let spile = guarded().await;
    let mut client = super::client(&spile).await;
    for words in [&["PING"][..], &["INFO"], &["GET", "x"], &["CL.THROTTLE", "k", "1", "1", "1"]] {
        assert_eq!(client.ask(words).await, "-NOAUTH Authentication required.", "{words:?}");
    }
    assert!(client.ask(&["HELLO", "3"]).await.starts_with("-NOAUTH HELLO must be called"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(client.ask(&["AUTH", "guess"]).await, wrong);
    assert_eq!(client.ask(&["AUTH", "root", PASSWORD]).await, wrong);
    assert_eq!(client.ask(&["HELLO", "3", "AUTH", "default", "guess"]).await, wrong);
    assert_eq!(client.ask(&["AUTH", PASSWORD]).await, "OK");
    assert_eq!(client.throttle("k 1 1 1").await, "[0, 2, 1, -1, 1]");
    assert_eq!(client.ask(&["RESET"]).await, "RESET");
    assert_eq!(client.ask(&["PING"]).await, "-NOAUTH Authentication required.");
    let hello = client.ask(&["HELLO", "3", "AUTH", "default", PASSWORD]).await;
    assert!(hello.starts_with("{server, spile"), "{hello}");
    assert_eq!(client.ask(&["PING"]).await, "PONG");
}

#[test]
fn a_password_in_a_file_is_asked_for_and_changes_with_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, password) = (folder.path().join("spile.toml"), folder.path().join("resp.password"));
    fs::write(&file, "[resp]\npassword_file = \"resp.password\"\n").expect("the folder is ours");
    let file = file.to_str().expect("the folder's name is text");

    let refused = Process::run(&["config", "check", file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "without the file everybody would be let in");
    assert!(said.contains("password_file") && said.contains("the password cannot be read"), "{said}");

    fs::write(&password, "first\n").expect("the folder is ours");
    let spile = Process::serve(&["--config", file, "--resp", "127.0.0.1:0"]);
    spile.until_logged("the RESP password has fewer than 16 bytes");
    let answer = |words: &[&str]| {
        let address = spile.address("resp").parse().expect("an address");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { Client::connect(address).await.ask(words).await })
    };
    assert_eq!(answer(&["AUTH", "first"]), "OK");
    fs::write(&password, "second").expect("the folder is ours");
    spile.send(Signal::HUP);
    wait::until_true("the second password", || answer(&["AUTH", "second"]) == "OK");
    assert!(answer(&["AUTH", "first"]).starts_with("-WRONGPASS"));
}
