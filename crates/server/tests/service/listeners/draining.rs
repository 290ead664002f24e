//! A stop: every client is told, and the whole of it takes no longer than promised.

use std::time::Duration;

use http::Request;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{PATIENCE, everything, http2, http2_doors};

#[tokio::test]
async fn clients_of_every_listener_are_told_to_go_and_the_stop_does_not_wait_for_idle_ones() {
    let spile = everything("").await;
    let mut clients = Vec::new();
    for (name, address, path) in http2_doors(&spile) {
        let (client, ended) = http2(address, 65_535).await;
        let mut client = client.ready().await.expect("a stream");
        let request = Request::get(format!("http://127.0.0.1{path}")).body(()).expect("a request");
        let answer = client.send_request(request, true).expect("a stream").0.await.expect("an answer");
        drop(answer);
        clients.push((name, client, ended));
    }
    let _resp = TcpStream::connect(spile.resp.expect("it is on")).await.expect("it listens");
    // These say nothing more, not even to a ping.
    let mut mute = Vec::new();
    for (_, address, _) in http2_doors(&spile) {
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("it reads");
        mute.push(client);
    }
    let began = Instant::now();
    timeout(PATIENCE, spile.stop()).await.expect("it stops").expect("it ends by itself");
    assert!(began.elapsed() < Duration::from_secs(10), "nothing was under way: {:?}", began.elapsed());
    for (name, _client, ended) in clients {
        let ended = timeout(PATIENCE, ended).await.expect("the connection ends").expect("it runs");
        assert!(ended.is_ok(), "{name} breaks the connection off instead: {ended:?}");
    }
}

#[tokio::test]
async fn a_whole_stop_takes_little_longer_than_its_drain_timeout() {
    let spile = everything("[listen]\ndrain_timeout = \"1s\"\n[gateway]\ndrain_timeout = \"1s\"\n").await;
    let mut stuck = Vec::new();
    let doors = [spile.http, spile.admin, spile.gateway.expect("it is on"), spile.resp.expect("it is on")];
    for address in doors {
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client
            .write_all(b"POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le")
            .await
            .expect("it reads");
        stuck.push(client);
    }
    let mut endless = TcpStream::connect(spile.admin).await.expect("it listens");
    endless.write_all(b"GET /dashboard/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.expect("it reads");
    let (watching, _connection) = http2(spile.grpc.expect("it is on"), 65_535).await;
    let mut watching = watching.ready().await.expect("a stream");
    let request = Request::post("http://127.0.0.1/grpc.health.v1.Health/Watch").body(()).expect("a request");
    let (_answer, mut body) = watching.send_request(request, false).expect("a stream");
    body.send_data(bytes::Bytes::from_static(&[0, 0, 0, 0, 0]), true).expect("it reads");
    // Each has reached the server before it is told to stop.
    spile.admin("/livez").await;
    let began = Instant::now();
    timeout(PATIENCE, spile.stop()).await.expect("it stops").expect("it ends by itself");
    // A second for those under way, and two for those who watch; the rest is what a busy machine adds.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
