//! Connections and streams of which a client makes nothing.

use std::time::Duration;

use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{HASTE, PATIENCE, everything, http2, http2_doors};

#[tokio::test]
async fn a_connection_that_asks_for_nothing_ends_at_every_listener_though_it_answers_pings() {
    let spile = everything(HASTE).await;
    for (name, address, _) in http2_doors(&spile) {
        // The client answers pings by itself.
        let (_client, ended) = http2(address, 65_535).await;
        let ended = timeout(PATIENCE, ended).await;
        assert!(ended.is_ok(), "{name} keeps an idle connection");
    }
}

/// What a client says first over HTTP/2: the preface, and settings of which there are none.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingping";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn pings_and_settings_keep_no_connection_however_many_come_at_once() {
    let spile = everything(HASTE).await;
    for (name, address, _) in http2_doors(&spile) {
        for (frame, pause) in [(PING, 50), (SETTINGS, 50), (PING, 0)] {
            let stream = TcpStream::connect(address).await.expect("it listens");
            let (mut answers, mut client) = stream.into_split();
            let asking = async {
                client.write_all(HELLO).await?;
                loop {
                    client.write_all(&frame.repeat(50)).await?;
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            };
            let reading = async {
                let mut piece = [0; 4096];
                while answers.read(&mut piece).await.is_ok_and(|read| read > 0) {}
            };
            let ended = timeout(PATIENCE, async {
                tokio::select! {
                    () = reading => {}
                    refused = asking => drop::<std::io::Result<()>>(refused),
                }
            });
            assert!(ended.await.is_ok(), "{name} keeps a connection that sends {frame:?} every {pause} ms");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_or_in_another_coding_is_refused_at_once() {
    let spile = everything("").await;
    let post = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for (fields, status) in [
        ("content-length: 999999999999999999\r\n", "413"),
        ("content-length: 999999999\r\nexpect: 100-continue\r\n", "413"),
        ("transfer-encoding: gzip, chunked\r\n", "400"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "400"),
    ] {
        let mut client = TcpStream::connect(spile.http).await.expect("it listens");
        client.write_all(format!("{post}{fields}\r\n").as_bytes()).await.expect("it reads");
        let mut answer = [0; 12];
        // Sooner than a body that does not come is given up.
        let read = timeout(Duration::from_secs(8), client.read_exact(&mut answer)).await;
        read.expect("an answer at once").expect("an answer");
        assert_eq!(std::str::from_utf8(&answer[9..]), Ok(status), "{fields}");
    }
    let mut client = TcpStream::connect(spile.http).await.expect("it listens");
    client.write_all(b"GET /api/ping HTTP/1.1\r\n\r\n").await.expect("it reads");
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 400", "without a host");
}

#[tokio::test]
async fn an_answer_that_is_not_taken_ends_at_every_listener() {
    let spile = everything(HASTE).await;
    for (name, address, path) in http2_doors(&spile) {
        let (mut client, _connection) = http2(address, 0).await;
        let mut answers = Vec::new();
        for _ in 0..50 {
            client = client.ready().await.expect("a stream");
            let request = Request::get(format!("http://127.0.0.1{path}")).body(()).expect("a request");
            answers.push(client.send_request(request, true).expect("a stream").0);
        }
        let all = async {
            for answer in answers {
                if let Ok(answer) = answer.await {
                    let mut body = answer.into_body();
                    while let Some(Ok(_)) = body.data().await {}
                }
            }
        };
        assert!(timeout(PATIENCE, all).await.is_ok(), "{name} keeps answers that are not taken");
    }
}

#[tokio::test]
async fn idle_clients_do_not_keep_others_out() {
    let settings = HASTE.replace("[listen]\n", "[listen]\nmax_connections = 3\n");
    let spile = everything(&settings).await;
    for (name, address, _) in http2_doors(&spile).into_iter().filter(|(name, ..)| *name != "gateway") {
        let mut idle = Vec::new();
        for _ in 0..3 {
            idle.push(http2(address, 65_535).await);
        }
        let next = timeout(PATIENCE, http2(address, 65_535)).await;
        assert!(next.is_ok(), "{name} is full for good");
    }
}

#[tokio::test]
async fn a_request_with_two_ends_is_refused_and_nothing_behind_it_is_read() {
    let spile = everything("").await;
    let smuggled = "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\n\
        transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    for (name, address) in [("http", spile.http), ("admin", spile.admin)] {
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client.write_all(smuggled.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        let read = timeout(PATIENCE, client.read_to_string(&mut answer)).await;
        read.expect("the connection ends").expect("the answer can be read");
        assert!(answer.starts_with("HTTP/1.1 400"), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{name}: {answer}");
    }
}

#[tokio::test]
async fn every_listener_counts_its_connections() {
    let spile = everything(HASTE).await;
    let resp = TcpStream::connect(spile.resp.expect("it is on")).await.expect("it listens");
    let held: Vec<_> = {
        let mut held = Vec::new();
        for (_, address, _) in http2_doors(&spile) {
            held.push(http2(address, 65_535).await);
        }
        held
    };
    let metrics = spile.admin("/metrics").await.text;
    for name in ["http", "admin", "grpc", "resp", "gateway"] {
        let count = |series: &str| {
            let line = metrics.lines().find(|line| line.starts_with(series));
            let line = line.unwrap_or_else(|| panic!("{series} in {metrics}"));
            line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).expect("a number")
        };
        assert!(count(&format!("server_connections{{listener=\"{name}\"}}")) >= 1.0, "{name}");
        assert!(count(&format!("server_connections_total{{listener=\"{name}\"}}")) >= 1.0, "{name}");
        assert!(
            metrics.contains(&format!(
                "server_connections_ended_total{{listener=\"{name}\",reason=\"timeout\"}}"
            )),
            "{name}"
        );
    }
    drop((resp, held));
}
