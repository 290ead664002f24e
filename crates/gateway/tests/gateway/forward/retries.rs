//! Which requests are retried, and which never are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::Response;
use spile_gateway::{Route, Timeouts, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{RawBackend, in_time, open, running};

const FRESH: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfresh";

/// Requests that reached an upstream.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// The number of this request, from 0.
    fn run(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn forget(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(head)
}

/// Responds to `/ok`. Closes the connection after reading any other request.
async fn dropping(runs: &Runs) -> Upstream {
    let runs = runs.clone();
    let backend = RawBackend::start(move |mut stream| {
        let runs = runs.clone();
        async move {
            while let Some(head) = read_head(&mut stream).await {
                if !String::from_utf8_lossy(&head).contains(" /ok ") {
                    runs.run();
                    return;
                }
                let _said = stream.write_all(FRESH).await;
            }
        }
    })
    .await;
    backend.upstream()
}

/// An HTTP/2 server that responds to `/ok`. Of other streams, it resets the first `resets` with this reason.
async fn resetting(runs: &Runs, reason: Reason, resets: usize) -> Upstream {
    let runs = runs.clone();
    let backend = RawBackend::start(move |stream| {
        let runs = runs.clone();
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                if request.uri().path() != "/ok" && runs.run() < resets {
                    respond.send_reset(reason);
                    continue;
                }
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                let _sent = body.send_data(Bytes::from_static(b"fresh"), true);
            }
        }
    })
    .await;
    format!("h2c://{}", backend.address).parse().unwrap()
}

fn to(upstreams: impl IntoIterator<Item = Upstream>, retries: u8) -> Route {
    Route::new("/", upstreams).unwrap().retries(retries)
}

#[tokio::test]
async fn without_retries_nothing_that_was_sent_is_sent_again() {
    for method in ["GET", "DELETE", "PUT", "POST"] {
        let runs = Runs::default();
        let upstreams = [
            dropping(&runs).await,
            resetting(&runs, Reason::CANCEL, usize::MAX).await,
            resetting(&runs, Reason::REFUSED_STREAM, usize::MAX).await,
        ];
        for upstream in upstreams {
            let gateway = running(open(to([upstream.clone()], 0))).await;
            let mut client = gateway.client().await;
            assert_eq!(client.get("/ok", &[]).await.status, 200, "the connection stands");
            let answer = in_time(method, client.ask(method, "/", &[], "")).await;
            assert_eq!((answer.status.as_u16(), runs.count()), (502, 1), "{method} to {upstream:?}");
            runs.forget();
        }
    }
}

#[tokio::test]
async fn a_request_that_breaks_connections_reaches_two_upstreams_at_most() {
    for (method, most) in [("GET", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)] {
        for warm in [false, true] {
            let runs = Runs::default();
            let mut upstreams = Vec::new();
            for _ in 0..4 {
                upstreams.push(dropping(&runs).await);
            }
            let gateway = running(open(to(upstreams, 5))).await;
            let mut client = gateway.client().await;
            for _ in 0..if warm { 8 } else { 0 } {
                assert_eq!(client.get("/ok", &[]).await.status, 200);
            }
            assert_eq!(in_time(method, client.ask(method, "/", &[], "")).await.status, 502);
            assert_eq!(runs.count(), most, "{method}, with connections that stand: {warm}");
        }
    }
}

#[tokio::test]
async fn a_kept_connection_that_breaks_costs_no_request_that_may_be_sent_again() {
    let runs = Runs::default();
    let counted = runs.clone();
    let backend = RawBackend::start(move |mut stream| {
        let runs = counted.clone();
        async move {
            // One response on each connection, which then seems open until it is used again.
            while read_head(&mut stream).await.is_some() && runs.run() % 2 == 0 {
                let _said = stream.write_all(FRESH).await;
            }
        }
    })
    .await;
    let gateway = running(open(to([backend.upstream()], 1))).await;
    let mut client = gateway.client().await;
    for expected in [1, 3, 5] {
        assert_eq!(client.get("/", &[]).await.status, 200);
        assert_eq!(runs.count(), expected, "what broke was sent once more, over a fresh connection");
    }
}

#[tokio::test]
async fn a_stream_is_sent_again_only_if_the_upstream_says_that_it_was_refused() {
    for reason in [Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
        for method in ["GET", "DELETE", "POST"] {
            let runs = Runs::default();
            let gateway = running(open(to([resetting(&runs, reason, 1).await], 5))).await;
            let answer = in_time(method, gateway.client().await.ask(method, "/", &[], "")).await;
            assert_eq!((answer.status.as_u16(), runs.count()), (502, 1), "{method}, {reason:?}");
        }
    }
    for method in ["GET", "DELETE", "POST"] {
        let runs = Runs::default();
        let gateway = running(open(to([resetting(&runs, Reason::REFUSED_STREAM, 1).await], 1))).await;
        let answer = in_time(method, gateway.client().await.ask(method, "/", &[], "")).await;
        assert_eq!((answer.status.as_u16(), runs.count()), (200, 2), "{method}");
    }
}

#[tokio::test]
async fn an_answer_that_broke_off_is_not_asked_for_again() {
    let runs = Runs::default();
    let counted = runs.clone();
    let backend = RawBackend::start(move |mut stream| {
        let runs = counted.clone();
        async move {
            if read_head(&mut stream).await.is_some() {
                runs.run();
                let _said = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await;
            }
        }
    })
    .await;
    let gateway = running(open(to([backend.upstream()], 5))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_timeout_is_not_tried_again() {
    let runs = Runs::default();
    let counted = runs.clone();
    let backend = RawBackend::start(move |mut stream| {
        let runs = counted.clone();
        async move {
            while read_head(&mut stream).await.is_some() {
                runs.run();
            }
        }
    })
    .await;
    let mut timeouts = Timeouts::default();
    timeouts.first_byte = Duration::from_millis(50);
    let gateway = running(open(to([backend.upstream()], 5).timeouts(timeouts))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 504);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn what_is_sent_again_over_kept_connections_comes_out_of_the_budget() {
    let runs = Runs::default();
    let gateway = running(open(to([dropping(&runs).await], 1))).await;
    let mut client = gateway.client().await;
    for _ in 0..60 {
        // Half of the requests get a pooled connection and break it.
        assert_eq!(client.get("/ok", &[]).await.status, 200);
        client.get("/", &[]).await;
    }
    // Ten in a burst, and one for each five of the 120 requests.
    assert!(runs.count() <= 60 + 10 + 24, "{}", runs.count());
}
