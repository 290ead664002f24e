//! What operators see: settings, the line at the start, metrics, and how it ends.

use std::io::ErrorKind;

use rustix::process::Signal;
use tokio::net::TcpStream;

use super::client::Client;
use super::{client, start};
use crate::support::Process;

#[tokio::test]
async fn every_answer_is_counted_by_its_result_and_every_decision_by_its_rule() {
    let spile = start().await;
    let mut client = client(&spile).await;
    for arguments in ["k 0 1 1", "k 0 1 1", "k 0 1 1", "k x 1 1"] {
        client.throttle(arguments).await;
    }
    client.ask(&["PING"]).await;
    let metrics = spile.admin("/metrics").await.text;
    for (series, value) in [
        ("rpc_server_requests_total{listener=\"resp\",result=\"allowed\"}", 1),
        ("rpc_server_requests_total{listener=\"resp\",result=\"limited\"}", 2),
        ("rpc_server_requests_total{listener=\"resp\",result=\"unavailable\"}", 0),
        ("rpc_server_requests_total{listener=\"resp\",result=\"refused\"}", 1),
        ("rpc_server_requests_total{listener=\"resp\",result=\"other\"}", 1),
    ] {
        assert!(metrics.contains(&format!("{series} {value}\n")), "{series} {value} in {metrics}");
    }
    let decisions = "ratelimit_decisions_total{rule=\"cl.throttle\",limit=\"cl.throttle\",outcome=\"denied\"";
    assert!(metrics.lines().any(|line| line.starts_with(decisions) && line.ends_with(" 2")), "{metrics}");
}

#[tokio::test]
async fn a_command_under_way_is_answered_and_the_idle_are_let_go() {
    let spile = start().await;
    let address = spile.resp.expect("the listener is on");
    let (mut idle, mut busy) = (client(&spile).await, client(&spile).await);
    assert_eq!(idle.ask(&["PING"]).await, "PONG");
    busy.send("PING\r\n*2\r\n$4\r\nECHO\r\n$4\r\nha").await;
    assert_eq!(busy.reply().await, "PONG");
    let stopped = spile.stop();
    assert_eq!(idle.rest().await, "");
    until_refused(address).await;
    busy.send("lf\r\n").await;
    assert_eq!(busy.rest().await, "$4\r\nhalf\r\n");
    stopped.await.expect("the server ends by itself");
}

async fn until_refused(address: std::net::SocketAddr) {
    loop {
        match TcpStream::connect(address).await {
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => return,
            _ => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn it_is_served_by_flag_and_by_variable_and_told_of_at_the_start() {
    let by_flag = Process::serve(&["--resp", "127.0.0.1:0"]);
    assert!(
        by_flag.banner.contains("CL.THROTTLE key max_burst count period [quantity]"),
        "{}",
        by_flag.banner
    );
    assert_eq!(ask(&by_flag, &["PING"]), "PONG");
    assert_eq!(by_flag.end_by(Signal::TERM).0.code(), Some(0));
    let by_variable = Process::serve_with(&[], &[("SPILE_LISTEN__RESP", "127.0.0.1:0")]);
    assert_eq!(ask(&by_variable, &["CL.THROTTLE", "k", "1", "1", "1"]), "[0, 2, 1, -1, 1]");
    let without = Process::serve(&[]);
    assert!(!without.banner.contains("CL.THROTTLE"), "{}", without.banner);
}

fn ask(spile: &Process, words: &[&str]) -> String {
    let address = spile.address("resp").parse().expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { Client::connect(address).await.ask(words).await })
}

#[test]
fn a_rule_of_its_name_says_what_happens_when_the_store_fails_and_whether_anybody_is_blocked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let rule = "[[rules]]\nid = \"cl.throttle\"\nplans = [\"free\"]\n";
    let serve = |more: &str| {
        std::fs::write(&path, format!("{rule}{more}\n")).expect("the folder is ours");
        let path = path.to_str().expect("the folder's name is text");
        Process::serve(&["--config", path, "--resp", "127.0.0.1:0"])
    };
    let watching = serve("mode = \"shadow\"");
    let words = ["CL.THROTTLE", "k", "0", "1", "60"];
    assert_eq!(ask(&watching, &words), "[0, 1, 0, -1, 60]");
    assert_eq!(ask(&watching, &words), "[0, 1, 0, -1, 60]");

    let strict = serve("on_failure = \"deny\"\n[store]\nurl = \"redis://127.0.0.1:1\"");
    assert!(ask(&strict, &words).starts_with("-UNAVAILABLE "));
}
