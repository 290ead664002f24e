//! HTTP/2 on both sides: streams, trailers, and clients that abuse them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use spile_gateway::{Bounds, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Backend, RawBackend, in_time, open, running, to};

type Sender = http2::SendRequest<http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>>;

async fn connect(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender
}

fn h2c(backend: &Backend) -> Upstream {
    format!("h2c://{}", backend.address).parse().unwrap()
}

#[tokio::test]
async fn either_side_speaks_either_version() {
    let backend = Backend::start(|seen| crate::support::text(seen.body.clone())).await;
    for upstream in [backend.upstream(), h2c(&backend)] {
        let gateway = running(open(to(upstream))).await;
        let mut sender = connect(gateway.address).await;
        let request = Request::post("http://gateway.test/echo").body(Full::from("over two").boxed()).unwrap();
        let answer = in_time("an answer", sender.send_request(request)).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "over two");
        assert_eq!(backend.last().header("x-forwarded-host"), Some("gateway.test"));
        let plain = gateway.client().await.ask("POST", "/echo", &[], "over one").await;
        assert_eq!(plain.body, "over one");
    }
}

#[tokio::test]
async fn a_grpc_call_keeps_its_trailers_and_its_form_of_refusal() {
    let backend = Backend::start(|_| crate::support::text("message")).await;
    let gateway = running(
        open(to(h2c(&backend)))
            .route(to("http://127.0.0.1:1".parse().unwrap()).named("dead").host("dead.test").unwrap()),
    )
    .await;
    let mut sender = connect(gateway.address).await;
    let trailers =
        HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
    let frames = [Ok(Frame::data(Bytes::from("ask"))), Ok(Frame::trailers(trailers))];
    let body = StreamBody::new(Frames(frames.into_iter().collect())).boxed();
    let call = Request::post("http://gateway.test/svc/Method")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let answer = in_time("an answer", sender.send_request(call.body(body).unwrap())).await.unwrap();
    assert_eq!(answer.status(), 200);
    let seen = backend.last();
    assert_eq!(
        seen.trailers.as_ref().map(|trailers| trailers["x-sum"].clone()),
        Some(HeaderValue::from_static("7"))
    );
    assert_eq!(seen.header("te"), Some("trailers"));
    let call = Request::post("http://dead.test/svc/Method").header("content-type", "application/grpc");
    let answer =
        in_time("a refusal", sender.send_request(call.body(Full::default().boxed()).unwrap())).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["grpc-status"].to_str().unwrap()), (200, "14"));
}

/// A body of these frames.
struct Frames(std::collections::VecDeque<Result<Frame<Bytes>, std::convert::Infallible>>);

impl futures_core::Stream for Frames {
    type Item = Result<Frame<Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.pop_front())
    }
}

#[tokio::test]
async fn fields_of_http_1_cannot_be_brought_in_over_http_2() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    for (name, value) in
        [("transfer-encoding", "chunked"), ("connection", "x"), ("upgrade", "h2c"), ("proxy-connection", "x")]
    {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::get("http://gateway.test/").body(()).unwrap();
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        // The library may refuse to send it. What counts is what reaches the upstream.
        if let Ok((answer, _)) = client.send_request(request, true) {
            drop(in_time("an answer", answer).await);
        }
    }
    for seen in backend.seen() {
        assert!(
            ["transfer-encoding", "connection", "upgrade", "proxy-connection"]
                .iter()
                .all(|name| seen.header(name).is_none())
        );
    }
}

/// Never responds, and counts open requests.
async fn tarpit() -> (RawBackend, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let open = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&open);
    let backend = RawBackend::start(move |mut stream| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let count = std::sync::Arc::clone(&count);
        async move {
            let mut sink = Vec::new();
            drop(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut sink).await);
            count.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
        }
    })
    .await;
    (backend, open)
}

#[tokio::test]
async fn rapid_resets_end_the_connection_and_leave_nothing_behind() {
    let (backend, open_upstream) = tarpit().await;
    let gateway = running(open(to(backend.upstream()))).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let mut client = client;
    let mut sent = 0;
    for _ in 0..100_000 {
        let request = Request::get("http://gateway.test/").body(()).unwrap();
        let Ok(ready) = in_time("a stream", client.clone().ready()).await else { break };
        client = ready;
        let Ok((answer, mut stream)) = client.send_request(request, true) else { break };
        stream.send_reset(h2::Reason::CANCEL);
        drop(answer);
        sent += 1;
        if sent % 10 == 0 {
            tokio::task::yield_now().await;
        }
        if ended.is_finished() {
            break;
        }
    }
    assert!(sent < 100_000, "a client that does nothing but reset is hung up on");
    crate::support::until("everything to be cancelled", || async {
        open_upstream.load(std::sync::atomic::Ordering::SeqCst) == 0
    })
    .await;
}

#[tokio::test]
async fn streams_are_capped() {
    let (backend, open_upstream) = tarpit().await;
    let mut bounds = Bounds::default();
    bounds.streams = 5;
    let gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    let sender = connect(gateway.address).await;
    let mut asked = Vec::new();
    for _ in 0..50 {
        let mut sender = sender.clone();
        asked.push(tokio::spawn(async move {
            let request = Request::get("http://gateway.test/").body(Full::default().boxed()).unwrap();
            drop(sender.send_request(request).await);
        }));
    }
    crate::support::until("the streams to be open", || async {
        open_upstream.load(std::sync::atomic::Ordering::SeqCst) == 5
    })
    .await;
    let more = tokio::time::timeout(Duration::from_millis(100), async {
        while open_upstream.load(std::sync::atomic::Ordering::SeqCst) <= 5 {
            tokio::task::yield_now().await;
        }
    });
    assert!(more.await.is_err(), "the sixth waits");
    for task in asked {
        task.abort();
    }
}

#[tokio::test]
async fn a_header_that_is_too_large_is_refused_over_http_2_too() {
    let backend = Backend::friendly().await;
    let mut bounds = Bounds::default();
    bounds.header_bytes = 16 * 1024;
    let gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    let mut sender = connect(gateway.address).await;
    let request = Request::get("http://gateway.test/")
        .header("x", "x".repeat(40_000))
        .body(Full::default().boxed())
        .unwrap();
    let answer = in_time("a refusal", sender.send_request(request)).await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status() == 431));
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn fields_are_counted_over_http_2_too() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut sender = connect(gateway.address).await;
    let asking = |fields: usize| {
        let mut request = Request::get("http://gateway.test/").body(Full::default().boxed()).unwrap();
        request.headers_mut().extend((0..fields).map(|number| {
            (Some(http::HeaderName::try_from(format!("x-{number}")).unwrap()), HeaderValue::from_static("1"))
        }));
        request
    };
    assert_eq!(in_time("an answer", sender.send_request(asking(80))).await.unwrap().status(), 200);
    assert_eq!(in_time("a refusal", sender.send_request(asking(102))).await.unwrap().status(), 431);
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn cookies_that_came_in_several_lines_reach_http_1_in_one() {
    let backend = Backend::friendly().await;
    for upstream in [backend.upstream(), h2c(&backend)] {
        let gateway = running(open(to(upstream))).await;
        let mut sender = connect(gateway.address).await;
        let request = Request::get("http://gateway.test/")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("cookie", "c=3; d=4");
        let request = request.body(Full::default().boxed()).unwrap();
        assert_eq!(in_time("an answer", sender.send_request(request)).await.unwrap().status(), 200);
        let seen = backend.last();
        assert_eq!(seen.headers.get_all("cookie").iter().count(), 1);
        assert_eq!(seen.header("cookie"), Some("a=1; b=2; c=3; d=4"));
    }
}

#[tokio::test]
async fn a_connection_that_asks_for_nothing_is_hung_up_on_though_it_answers_pings() {
    let (tell, told) = tokio::sync::watch::channel(false);
    let patient = RawBackend::start(move |mut stream| {
        let mut told = told.clone();
        async move {
            drop(told.wait_for(|told| *told).await);
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await);
            drop(stream.read(&mut [0; 4096]).await);
        }
    })
    .await;
    let mut bounds = Bounds::default();
    bounds.header_timeout = Duration::from_millis(200);
    let gateway = running(open(to(patient.upstream())).bounds(bounds)).await;
    let mut busy = connect(gateway.address).await;
    let ask = Request::get("http://gateway.test/").body(Full::default().boxed()).unwrap();
    let answer = tokio::spawn(async move { busy.send_request(ask).await });
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (idle, connection) =
        http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    drop(in_time("the gateway to hang up on the idle one", connection).await);
    drop(idle);
    tell.send_replace(true);
    let answer = in_time("the answer that took longer", answer).await.unwrap();
    assert_eq!(answer.expect("a connection that was kept").status(), 200);
}

#[tokio::test]
async fn a_stream_whose_window_never_opens_is_reset_and_its_upstream_let_go() {
    let (endless, mut states) = RawBackend::endless().await;
    let mut bounds = Bounds::default();
    bounds.write_timeout = std::time::Duration::from_millis(200);
    let gateway = running(open(to(endless.upstream())).bounds(bounds)).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    // The connection works; only the window of this stream stays closed.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get("http://g/").body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let mut body = in_time("the header", answer).await.unwrap().into_body();
    for state in ["asked", "let go"] {
        assert_eq!(in_time(state, states.recv()).await, Some(state));
    }
    let reset = in_time("the reset", async {
        loop {
            match body.data().await {
                Some(Ok(_)) => {}
                other => return other,
            }
        }
    });
    assert!(reset.await.is_some_and(|end| end.is_err_and(|why| why.is_reset())));
}
