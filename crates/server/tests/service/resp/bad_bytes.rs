//! Bytes that are no command, and commands that are too much.

use std::time::Duration;

use spile_server::Config;

use super::{client, config, start};
use crate::support::Spile;

#[tokio::test]
async fn what_is_no_protocol_is_said_and_ends_the_connection() {
    let spile = start().await;
    let table: [(&[u8], &str); 5] = [
        (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        (b"*nine\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"PING 'open\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ];
    for (bytes, said) in table {
        let mut client = client(&spile).await;
        // What came whole before it is still answered.
        client.send([b"PING\r\n", bytes].concat()).await;
        assert_eq!(client.rest().await, format!("+PONG\r\n{said}"), "{}", bytes.escape_ascii());
    }
}

#[tokio::test]
async fn a_command_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let refused = "-ERR a command takes at most 65536 bytes in 128 arguments";
    assert_eq!(client.ask(&["ECHO", &"x".repeat(1 << 20)]).await, refused);
    assert_eq!(client.ask(&["PING"; 1_000]).await, refused);
    assert_eq!(client.ask(&["PING"]).await, "PONG");
}

#[tokio::test]
async fn a_browser_that_is_made_to_send_commands_gets_nowhere() {
    let spile = start().await;
    let mut browser = client(&spile).await;
    browser.send("POST / HTTP/1.1\r\nHost: spile\r\n\r\nCL.THROTTLE victim 9 1 1 10\r\n").await;
    assert_eq!(browser.rest().await, "-ERR this is not an HTTP server\r\n");
    assert_eq!(client(&spile).await.throttle("victim 9 1 1 0").await, "[0, 10, 10, -1, 0]");
}

fn impatient() -> Config {
    let mut config = config();
    config.listen.bounds.header_timeout = Duration::from_millis(200);
    config.resp.idle_timeout = Duration::from_millis(200);
    config
}

#[tokio::test]
async fn idle_and_slow_clients_are_sent_away() {
    let spile = Spile::start_with(impatient()).await;
    assert_eq!(client(&spile).await.rest().await, "", "nothing was ever said");
    let mut slow = client(&spile).await;
    slow.send("*2\r\n$4\r\nECHO\r\n$10\r\nabc").await;
    assert_eq!(slow.rest().await, "", "a command that never ends is not waited for");
}

#[tokio::test]
async fn bytes_that_drip_in_gain_no_time() {
    let mut config = impatient();
    config.resp.idle_timeout = Duration::from_secs(60);
    let spile = Spile::start_with(config).await;
    let mut slow = client(&spile).await;
    slow.send("*2\r\n$4\r\nECHO\r\n$60000\r\n").await;
    let (mut reading, mut writing) = slow.split();
    let dripping = async {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while tokio::io::AsyncWriteExt::write_all(&mut writing, b"x").await.is_ok() {
            tick.tick().await;
        }
    };
    let ended = async {
        let mut rest = Vec::new();
        let _end_or_reset = tokio::io::AsyncReadExt::read_to_end(&mut reading, &mut rest).await;
    };
    let first = async {
        tokio::select! { () = dripping => {}, () = ended => {} }
    };
    tokio::time::timeout(spile_testkit::wait::PATIENCE, first).await.expect("it is sent away");
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_until_one_leaves() {
    let mut config = config();
    config.listen.bounds.connections = 1;
    let spile = Spile::start_with(config).await;
    let mut first = client(&spile).await;
    assert_eq!(first.ask(&["PING"]).await, "PONG");
    let mut second = client(&spile).await;
    second.send("PING\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(100), second.reply()).await;
    assert!(early.is_err(), "{early:?}");
    drop(first);
    assert_eq!(second.reply().await, "PONG");
}
