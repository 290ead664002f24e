//! Bodies are streamed: nothing is held back, nothing is read before it is needed, and a client that disconnects is
//! noticed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_gateway::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::support::{Backend, RawBackend, in_time, open, read_until, running, to, until};

#[tokio::test]
async fn an_answer_reaches_the_client_piece_by_piece() {
    let go_on = Arc::new(Notify::new());
    let waiting = Arc::clone(&go_on);
    let backend = RawBackend::start(move |mut stream| {
        let waiting = Arc::clone(&waiting);
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                .await
                .unwrap();
            waiting.notified().await;
            stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
    read_until(&mut client, "first\r\n").await;
    go_on.notify_one();
    read_until(&mut client, "second\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_request_reaches_the_upstream_piece_by_piece_and_may_be_answered_early() {
    let (pieces, mut arrived) = mpsc::unbounded_channel();
    let backend = RawBackend::start(move |mut stream| {
        let pieces = pieces.clone();
        async move {
            read_until(&mut stream, "first\r\n").await;
            pieces.send("first").unwrap();
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\n\r\nearly").await.unwrap();
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest).await);
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        .await
        .unwrap();
    assert_eq!(in_time("the first piece", arrived.recv()).await, Some("first"));
    let answer = read_until(&mut client, "early").await;
    assert!(
        answer.starts_with("HTTP/1.1 403"),
        "the answer does not wait for the rest of the request: {answer}"
    );
}

#[tokio::test]
async fn a_large_upload_and_its_echo_arrive_whole() {
    let backend = Backend::start(|seen| crate::support::text(seen.body.clone())).await;
    let gateway = running(open(to(backend.upstream()))).await;
    let body: String = (0..2_000_000).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    let answer = gateway.client().await.ask("POST", "/", &[], &body).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, body.len()));
    assert!(answer.body == body.as_bytes());
}

#[tokio::test]
async fn a_body_is_asked_for_only_once_it_may_be_sent() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()).max_body(10))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await
        .unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    client.write_all(b"body").await.unwrap();
    assert!(read_until(&mut client, "hello").await.starts_with("HTTP/1.1 200"));
    assert_eq!(backend.last().body, "body");
    let mut refused = TcpStream::connect(gateway.address).await.unwrap();
    refused
        .write_all(b"POST / HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n")
        .await
        .unwrap();
    assert!(read_until(&mut refused, "\r\n\r\n").await.starts_with("HTTP/1.1 413"), "not asked for at all");
}

#[tokio::test]
async fn an_upstream_notices_when_its_client_has_gone() {
    let (states, mut changed) = mpsc::unbounded_channel();
    let backend = RawBackend::start(move |mut stream| {
        let states = states.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            states.send("asked").unwrap();
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest).await);
            states.send("cancelled").unwrap();
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
    assert_eq!(in_time("the request", changed.recv()).await, Some("asked"));
    drop(client);
    assert_eq!(in_time("the cancellation", changed.recv()).await, Some("cancelled"));
}

#[tokio::test]
async fn trailers_go_through() {
    let backend = RawBackend::start(|mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        let answer = b"HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        drop(stream.read_u8().await);
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\nTE: trailers\r\nConnection: TE\r\n\r\n").await.unwrap();
    let answer = read_until(&mut client, "0\r\nx-sum: 7\r\n\r\n").await;
    assert!(answer.contains("trailer: x-sum"), "{answer}");
}

#[tokio::test]
async fn requests_under_way_are_finished_before_the_gateway_stops() {
    let go_on = Arc::new(Notify::new());
    let waiting = Arc::clone(&go_on);
    let asked: Arc<Mutex<bool>> = Arc::default();
    let seen = Arc::clone(&asked);
    let backend = RawBackend::start(move |mut stream| {
        let (waiting, seen) = (Arc::clone(&waiting), Arc::clone(&seen));
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            *seen.lock() = true;
            waiting.notified().await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await.unwrap();
        }
    })
    .await;
    let mut gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
    until("the request to be under way", || async { *asked.lock() }).await;
    let address = gateway.address;
    let stopped = gateway.stop();
    until("the door to be shut", || async { TcpStream::connect(address).await.is_err() }).await;
    assert!(!stopped.is_finished());
    go_on.notify_one();
    read_until(&mut client, "done").await;
    in_time("the gateway to stop", stopped).await.unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_keep_the_gateway_from_stopping() {
    let backend = RawBackend::start(|mut stream| async move {
        let mut sink = Vec::new();
        drop(stream.read_to_end(&mut sink).await);
    })
    .await;
    let mut bounds = Bounds::default();
    bounds.drain = Duration::from_millis(50);
    let mut gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
    in_time("the gateway to stop", gateway.stop()).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_has_said_nothing_does_not_keep_the_gateway_from_stopping() {
    let backend = Backend::friendly().await;
    let mut gateway = running(open(to(backend.upstream()))).await;
    let _silent = TcpStream::connect(gateway.address).await.unwrap();
    let mut begun = TcpStream::connect(gateway.address).await.unwrap();
    begun.write_all(b"PRI * HTT").await.unwrap();
    // Connections are accepted in order, so both earlier ones have been by now.
    assert_eq!(gateway.get("/", &[]).await.status, 200);
    in_time("the gateway to stop", gateway.stop()).await.unwrap();
}
