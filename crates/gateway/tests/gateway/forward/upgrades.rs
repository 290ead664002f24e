//! Upgraded connections, and upgrades that are refused.

use std::net::SocketAddr;

use spile_gateway::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Backend, RawBackend, in_time, open, running, to};

async fn header(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    in_time("a header", async {
        while !text.ends_with("\r\n\r\n") {
            text.push(char::from(stream.read_u8().await.expect("more bytes")));
        }
    })
    .await;
    text.to_ascii_lowercase()
}

/// Accepts any upgrade, then echoes.
async fn echoing() -> RawBackend {
    RawBackend::start(|mut stream| async move {
        let asked = header(&mut stream).await;
        if !asked.contains("upgrade: websocket") || !asked.contains("connection: upgrade") {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain").await);
            return;
        }
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n";
        stream.write_all(switch).await.unwrap();
        let (mut from, mut back) = stream.split();
        drop(tokio::io::copy(&mut from, &mut back).await);
    })
    .await
}

#[tokio::test]
async fn a_websocket_talks_through_the_gateway() {
    let backend = echoing().await;
    let mut gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let asks = b"GET /chat HTTP/1.1\r\nHost: g\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    client.write_all(asks).await.unwrap();
    let switched = header(&mut client).await;
    assert!(switched.starts_with("http/1.1 101") && switched.contains("upgrade: websocket"), "{switched}");
    for word in ["hello", "again"] {
        client.write_all(word.as_bytes()).await.unwrap();
        let mut echo = [0; 5];
        in_time("the echo", client.read_exact(&mut echo)).await.unwrap();
        assert_eq!(&echo, word.as_bytes());
    }
    let stopped = gateway.stop();
    drop(client);
    in_time("the gateway to stop", stopped).await.unwrap();
}

async fn tunnel(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let asks = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(asks).await.unwrap();
    assert!(header(&mut client).await.starts_with("http/1.1 101"));
    client
}

#[tokio::test]
async fn a_tunnel_keeps_its_place_among_the_connections_until_it_ends() {
    let backend = echoing().await;
    let mut bounds = Bounds::default();
    bounds.connections = 2;
    let gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    let (mut first, second) = (tunnel(gateway.address).await, tunnel(gateway.address).await);
    let mut third = TcpStream::connect(gateway.address).await.unwrap();
    third.write_all(b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await.unwrap();
    for word in ["one", "two", "six"] {
        first.write_all(word.as_bytes()).await.unwrap();
        let mut echo = [0; 3];
        in_time("the echo", first.read_exact(&mut echo)).await.unwrap();
        let answered = third.try_read(&mut [0; 1]);
        assert!(answered.is_err(), "a third connection is not served beside two tunnels");
    }
    drop(second);
    let mut answer = String::new();
    in_time("room", third.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_tunnel_goes_on_one_way_after_the_upstream_has_said_its_last() {
    let (heard, mut rest) = tokio::sync::mpsc::unbounded_channel();
    let backend = RawBackend::start(move |mut stream| {
        let heard = heard.clone();
        async move {
            header(&mut stream).await;
            let switch =
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            stream.write_all(switch).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            heard.send(rest).unwrap();
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = tunnel(gateway.address).await;
    client.write_all(b"half a line").await.unwrap();
    assert_eq!(in_time("the end", client.read(&mut [0; 1])).await.unwrap(), 0);
    client.write_all(b", and the other half").await.unwrap();
    client.shutdown().await.unwrap();
    let rest = in_time("the rest", rest.recv()).await;
    assert_eq!(rest.as_deref(), Some("half a line, and the other half"));
}

#[tokio::test]
async fn no_other_protocol_is_spoken_behind_the_gateways_back() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    let fields =
        [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABk")];
    assert_eq!(gateway.get("/", &fields).await.status, 200);
    let seen = backend.last();
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn an_upstream_that_switches_unasked_is_not_followed() {
    let backend =
        RawBackend::saying(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .await;
    let gateway = running(open(to(backend.upstream()))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502);
}

#[tokio::test]
async fn a_wish_that_http_2_cannot_grant_is_dropped_and_held_against_no_upstream() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(format!("h2c://{}", backend.address).parse().unwrap()))).await;
    for _ in 0..12 {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let asks = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        client.write_all(asks).await.unwrap();
        let answered = header(&mut client).await;
        assert!(answered.starts_with("http/1.1 200"), "{answered}");
    }
    assert!(backend.seen().iter().all(|seen| seen.header("upgrade").is_none()));
    assert_eq!(backend.seen().len(), 12, "asked once each");
}
