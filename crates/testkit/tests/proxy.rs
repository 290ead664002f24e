//! What the proxy does to a conversation with a real server.

use std::time::Duration;

use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Long enough for any reply on loopback, short enough to wait for one that must not come.
const SILENCE: Duration = Duration::from_millis(100);

async fn setting() -> (RedisServer, Proxy, TcpStream) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    let client = TcpStream::connect(proxy.address()).await.expect("the proxy");
    (server, proxy, client)
}

/// Sends `words` and returns `length` bytes of what comes back.
async fn ask(client: &mut TcpStream, words: &str, length: usize) -> std::io::Result<String> {
    client.write_all(format!("{words}\r\n").as_bytes()).await?;
    let mut reply = vec![0; length];
    client.read_exact(&mut reply).await?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(SILENCE, ask(client, "PING", 7)).await.is_err()
}

#[tokio::test]
async fn what_passes_is_unchanged() {
    let (_server, proxy, mut client) = setting().await;
    assert_eq!(ask(&mut client, "PING", 7).await.expect("a reply"), "+PONG\r\n");
    proxy.set(Mode::OneByte);
    assert_eq!(ask(&mut client, "PING", 7).await.expect("a reply"), "+PONG\r\n");
    assert_eq!((proxy.dials(), proxy.open()), (1, 1));
}

#[tokio::test]
async fn a_delay_holds_every_reply_and_not_one_after_the_other() {
    let (_server, proxy, mut client) = setting().await;
    proxy.set(Mode::Delay(SILENCE));
    let asked = Instant::now();
    client.write_all(b"PING\r\n").await.expect("sent");
    tokio::time::sleep(SILENCE / 4).await;
    ask(&mut client, "PING", 14).await.expect("both replies");
    assert!(asked.elapsed() >= SILENCE);
    assert!(asked.elapsed() < SILENCE * 2, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_cut_leaves_half_a_reply() {
    let (_server, proxy, mut client) = setting().await;
    proxy.set(Mode::CutMidReply);
    client.write_all(b"PING\r\n").await.expect("sent");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.expect("an end");
    assert_eq!(rest, b"+PO");
}

#[tokio::test]
async fn a_half_open_connection_stays_dead_and_a_new_one_lives() {
    let (_server, proxy, mut client) = setting().await;
    ask(&mut client, "PING", 7).await.expect("a reply");
    proxy.set(Mode::HalfOpen);
    assert!(is_silent(&mut client).await);
    proxy.set(Mode::Pass);
    assert!(is_silent(&mut client).await);
    let mut fresh = TcpStream::connect(proxy.address()).await.expect("the proxy");
    assert_eq!(ask(&mut fresh, "PING", 7).await.expect("a reply"), "+PONG\r\n");
    assert_eq!(proxy.dials(), 2);
}

#[tokio::test]
async fn a_reset_strikes_idle_connections_and_new_ones() {
    let (_server, proxy, mut client) = setting().await;
    ask(&mut client, "PING", 7).await.expect("a reply");
    proxy.set(Mode::Reset);
    let struck = client.read_u8().await.expect_err("no byte can come");
    assert_eq!(struck.kind(), std::io::ErrorKind::ConnectionReset);
    let mut fresh = TcpStream::connect(proxy.address()).await.expect("the listener");
    assert!(ask(&mut fresh, "PING", 7).await.is_err());
}

#[tokio::test]
async fn garbage_is_no_reply() {
    let (_server, proxy, mut client) = setting().await;
    proxy.set(Mode::Garbage);
    let reply = ask(&mut client, "PING", 7).await.expect("bytes");
    assert!(!"+-:$*_#,(%~>=!|".contains(&reply[..1]), "{reply:?}");
}

#[tokio::test]
async fn swapped_replies_trade_places() {
    let (_server, proxy, mut client) = setting().await;
    proxy.set(Mode::Swapped);
    let replies = ask(&mut client, "ECHO one\r\nECHO three", 9 + 11).await.expect("both replies");
    assert_eq!(replies, "$5\r\nthree\r\n$3\r\none\r\n");
}

#[tokio::test]
async fn replies_of_two_connections_trade_places() {
    let (_server, proxy, mut one) = setting().await;
    let mut other = TcpStream::connect(proxy.address()).await.expect("the proxy");
    proxy.set(Mode::Swapped);
    let (to_one, to_other) = tokio::join!(ask(&mut one, "ECHO 1", 7), ask(&mut other, "ECHO 2", 7));
    assert_eq!(to_one.expect("a reply"), "$1\r\n2\r\n");
    assert_eq!(to_other.expect("a reply"), "$1\r\n1\r\n");
}

#[tokio::test]
async fn a_reply_with_none_to_trade_with_arrives_all_the_same() {
    let (_server, proxy, mut client) = setting().await;
    proxy.set(Mode::Swapped);
    assert_eq!(ask(&mut client, "PING", 7).await.expect("a reply"), "+PONG\r\n");
}

#[tokio::test]
async fn a_dropped_reply_leaves_its_request_done_and_its_connection_mute() {
    let (server, proxy, mut client) = setting().await;
    proxy.set(Mode::DropReplies);
    client.write_all(b"INCR counter\r\n").await.expect("sent");
    assert!(is_silent(&mut client).await);
    assert_eq!(server.command(&["GET", "counter"]).int(), 1);
    proxy.set(Mode::Pass);
    assert!(is_silent(&mut client).await);
}

#[tokio::test]
async fn a_closed_connection_is_no_longer_counted() {
    let (_server, proxy, client) = setting().await;
    drop(client);
    let gone = async {
        while proxy.open() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), gone).await.expect("the link ends with its client");
}
