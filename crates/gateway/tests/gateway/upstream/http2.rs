//! HTTP/2 connections that requests of different clients share: what one client does must not affect another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use spile_gateway::{Route, Timeouts, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{Running, in_time, open, running, to, until};

type Reply = SendResponse<Bytes>;

/// An HTTP/2 server that counts its connections.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Allows this many streams at once on a connection, and passes each to `answer` with the number of the connection.
    async fn start<F>(
        streams: u32,
        answer: impl Fn(usize, Request<RecvStream>, Reply) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (number, answer) = (count.fetch_add(1, Ordering::SeqCst) + 1, answer.clone());
                tokio::spawn(async move {
                    let mut settings = h2::server::Builder::new();
                    settings.max_concurrent_streams(streams);
                    let Ok(mut connection) = settings.handshake::<_, Bytes>(stream).await else { return };
                    while let Some(Ok((request, reply))) = connection.accept().await {
                        tokio::spawn(answer(number, request, reply));
                    }
                });
            }
        });
        Self { address, connections }
    }

    fn upstream(&self) -> Upstream {
        format!("h2c://{}", self.address).parse().unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn say(mut reply: Reply, words: usize) {
    let mut body = reply.send_response(Response::new(()), false).unwrap();
    drop(body.send_data(Bytes::from(words.to_string()), true));
}

fn timed(upstream: Upstream, change: impl FnOnce(&mut Timeouts)) -> Route {
    let mut timeouts = Timeouts::default();
    change(&mut timeouts);
    to(upstream).timeouts(timeouts)
}

async fn h2_client(gateway: &Running) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn ask(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://gateway.test{path}")).body(()).unwrap()
}

#[tokio::test]
async fn an_upstream_whose_streams_are_used_up_gets_another_connection() {
    let server = Server::start(2, |connection, request, mut reply| async move {
        if request.uri().path() == "/hold" {
            let _held = reply.send_response(Response::new(()), false).unwrap();
            std::future::pending::<()>().await;
        }
        say(reply, connection);
    })
    .await;
    let gateway = running(open(to(server.upstream()))).await;
    let mut client = h2_client(&gateway).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let (answer, _) = client.send_request(ask("GET", "/hold"), true).unwrap();
        held.push(in_time("a stream that stays", answer).await.unwrap());
    }
    for _ in 0..5 {
        assert_eq!(in_time("an answer beside them", gateway.get("/", &[])).await.body, "2");
    }
    assert_eq!(server.connections(), 2, "one more is enough");
}

#[tokio::test]
async fn a_crowd_of_requests_shares_one_new_connection() {
    let server = Server::start(100, |connection, _, reply| async move { say(reply, connection) }).await;
    let gateway = Arc::new(running(open(to(server.upstream()))).await);
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let gateway = Arc::clone(&gateway);
            tokio::spawn(async move { gateway.get("/", &[]).await.body })
        })
        .collect();
    for one in crowd {
        assert_eq!(in_time("an answer", one).await.unwrap(), "1");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_request_that_times_out_gets_the_next_one_a_new_connection_and_a_stream_goes_on_beside_it() {
    let (go_on, gone_on) = watch::channel(false);
    let server = Server::start(100, move |connection, request, mut reply| {
        let mut gone_on = gone_on.clone();
        async move {
            match request.uri().path() {
                "/hang" => std::future::pending().await,
                "/stream" => {
                    let mut body = reply.send_response(Response::new(()), false).unwrap();
                    drop(gone_on.wait_for(|on| *on).await);
                    drop(body.send_data(Bytes::from("at last"), true));
                }
                _ => say(reply, connection),
            }
        }
    })
    .await;
    let route = timed(server.upstream(), |waits| waits.first_byte = Duration::from_millis(200));
    let gateway = running(open(route)).await;
    let mut client = h2_client(&gateway).await;
    let (answer, _) = client.send_request(ask("GET", "/stream"), true).unwrap();
    let mut stream = in_time("the header of a stream", answer).await.unwrap().into_body();
    assert_eq!(in_time("a timeout", gateway.get("/hang", &[])).await.status, 504);
    assert_eq!(in_time("an answer", gateway.get("/", &[])).await.body, "2");
    go_on.send_replace(true);
    let piece = in_time("the stranger's stream", stream.data()).await;
    assert_eq!(piece.unwrap().unwrap(), "at last");
}

/// A way to a server on which the first connection can be made silent: its bytes are taken, and none are passed on.
struct SilentWay {
    address: SocketAddr,
    silence: watch::Sender<bool>,
    /// Bytes that were taken and not passed on.
    swallowed: Arc<AtomicUsize>,
}

impl SilentWay {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silence, silent) = watch::channel(false);
        let swallowed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&swallowed);
        tokio::spawn(async move {
            for number in 1.. {
                let (client, _) = listener.accept().await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = TcpStream::connect(server).await.unwrap().into_split();
                for (mut from, mut to) in [(from_client, to_server), (from_server, to_client)] {
                    let (silent, count) = (silent.clone(), Arc::clone(&count));
                    tokio::spawn(async move {
                        let mut bytes = [0; 4_096];
                        while let Ok(read @ 1..) = from.read(&mut bytes).await {
                            if number == 1 && *silent.borrow() {
                                count.fetch_add(read, Ordering::SeqCst);
                            } else if to.write_all(&bytes[..read]).await.is_err() {
                                return;
                            }
                        }
                        if number == 1 && *silent.borrow() {
                            std::future::pending::<()>().await;
                        }
                    });
                }
            }
        });
        Self { address, silence, swallowed }
    }

    fn upstream(&self) -> Upstream {
        format!("h2c://{}", self.address).parse().unwrap()
    }
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_replaced_although_all_clients_leave_before_the_timeout() {
    let server = Server::start(100, |connection, _, reply| async move { say(reply, connection) }).await;
    for is_clients_doing in [true, false] {
        let before = server.connections();
        let way = SilentWay::to(server.address).await;
        let route = timed(way.upstream(), |waits| {
            waits.first_byte = Duration::from_secs(600);
            waits.total = (!is_clients_doing).then_some(Duration::from_millis(200));
        });
        let gateway = running(open(route)).await;
        assert_eq!(in_time("an answer", gateway.get("/", &[])).await.status, 200);
        assert_eq!(server.connections(), before + 1);
        way.silence.send_replace(true);
        if is_clients_doing {
            let mut client = TcpStream::connect(gateway.address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
            until("it to be sent", || async { way.swallowed.load(Ordering::SeqCst) > 0 }).await;
            let mut open = h2_client(&gateway).await;
            // Read before the request is sent, which may be swallowed at once.
            let sent = way.swallowed.load(Ordering::SeqCst);
            let (answer, mut stream) = open.send_request(ask("GET", "/"), true).unwrap();
            // A connection that is suspected already sends no more than the ping that was swallowed before.
            let is_sent =
                until("the other to be sent", || async { way.swallowed.load(Ordering::SeqCst) > sent });
            let _suspected = tokio::time::timeout(Duration::from_secs(2), is_sent).await;
            stream.send_reset(Reason::CANCEL);
            drop((client, answer));
        } else {
            assert_eq!(in_time("the total timeout", gateway.get("/", &[])).await.status, 504);
        }
        until("an answer over a new connection", || async {
            let ask = tokio::time::timeout(Duration::from_secs(3), gateway.get("/", &[])).await;
            ask.is_ok_and(|answer| answer.status == 200)
        })
        .await;
        assert_eq!(server.connections(), before + 2);
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_slow_upstream_costs_others_neither_their_streams_nor_the_connection() {
    let (go_on, gone_on) = watch::channel(false);
    let (tell, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(100, move |connection, request, mut reply| {
        let (mut gone_on, tell) = (gone_on.clone(), tell.clone());
        async move {
            match request.uri().path() {
                "/hang" => {
                    tell.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                "/stream" => {
                    let mut body = reply.send_response(Response::new(()), false).unwrap();
                    drop(gone_on.wait_for(|on| *on).await);
                    drop(body.send_data(Bytes::from("at last"), true));
                }
                _ => say(reply, connection),
            }
        }
    })
    .await;
    let gateway = running(open(to(server.upstream()))).await;
    let mut client = h2_client(&gateway).await;
    let (answer, _) = client.send_request(ask("GET", "/stream"), true).unwrap();
    let mut stream = in_time("the header of a stream", answer).await.unwrap().into_body();
    for _ in 0..3 {
        let mut leaves = TcpStream::connect(gateway.address).await.unwrap();
        leaves.write_all(b"GET /hang HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
        in_time("the upstream to be asked", asked.recv()).await.unwrap();
        drop(leaves);
        assert_eq!(in_time("an answer", gateway.get("/", &[])).await.body, "1", "on the same connection");
    }
    go_on.send_replace(true);
    let piece = in_time("the stranger's stream", stream.data()).await;
    assert_eq!(piece.unwrap().unwrap(), "at last");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_alone() {
    let server = Server::start(100, |connection, request, mut reply| async move {
        match request.uri().path() {
            "/reset" => reply.send_reset(Reason::INTERNAL_ERROR),
            "/hold" => {
                let _held = reply.send_response(Response::new(()), false).unwrap();
                std::future::pending::<()>().await;
            }
            _ => say(reply, connection),
        }
    })
    .await;
    let gateway = running(open(to(server.upstream()))).await;
    let mut client = h2_client(&gateway).await;
    let (answer, _) = client.send_request(ask("GET", "/hold"), true).unwrap();
    let mut held = in_time("a stream that stays", answer).await.unwrap().into_body();
    for _ in 0..20 {
        assert_eq!(in_time("a refusal", gateway.get("/reset", &[])).await.status, 502);
    }
    assert_eq!(in_time("an answer", gateway.get("/", &[])).await.body, "1", "on the same connection");
    let ended = tokio::time::timeout(Duration::from_millis(50), held.data()).await;
    assert!(ended.is_err(), "the stream goes on: {ended:?}");
}

#[tokio::test]
async fn tiny_frames_that_pile_up_before_a_slow_upstream_end_no_other_stream() {
    let (go_on, gone_on) = watch::channel(false);
    let server = Server::start(100, move |_, request, reply| {
        let mut gone_on = gone_on.clone();
        async move {
            let mut body = request.into_body();
            if !body.is_end_stream() {
                drop(gone_on.wait_for(|on| *on).await);
            }
            let mut bytes = 0;
            while let Some(Ok(piece)) = body.data().await {
                bytes += piece.len();
                drop(body.flow_control().release_capacity(piece.len()));
            }
            say(reply, bytes);
        }
    })
    .await;
    let gateway = running(open(to(server.upstream()))).await;
    let mut client = h2_client(&gateway).await;
    let (answer, mut upload) = client.send_request(ask("POST", "/up"), false).unwrap();
    for _ in 0..60_000 {
        upload.send_data(Bytes::from_static(b"x"), false).unwrap();
    }
    for _ in 0..10 {
        let (beside, _) = client.send_request(ask("GET", "/"), true).unwrap();
        assert_eq!(in_time("an answer beside it", beside).await.unwrap().status(), 200);
    }
    go_on.send_replace(true);
    upload.send_data(Bytes::new(), true).unwrap();
    let mut answer = in_time("the answer to it", answer).await.unwrap().into_body();
    assert_eq!(in_time("the count", answer.data()).await.unwrap().unwrap(), "60000");
}

#[tokio::test]
async fn tiny_frames_that_pile_up_before_a_slow_client_end_no_other_stream() {
    let server = Server::start(100, |connection, request, mut reply| async move {
        if request.uri().path() != "/down" {
            return say(reply, connection);
        }
        let mut body = reply.send_response(Response::new(()), false).unwrap();
        for _ in 0..100_000 {
            drop(body.send_data(Bytes::from_static(b"x"), false));
        }
        drop(body.send_data(Bytes::new(), true));
    })
    .await;
    let gateway = running(open(to(server.upstream()))).await;
    let mut slow = h2_client(&gateway).await;
    let (answer, _) = slow.send_request(ask("GET", "/down"), true).unwrap();
    let mut down = in_time("the header", answer).await.unwrap().into_body();
    for _ in 0..10 {
        assert_eq!(in_time("a stranger's answer", gateway.get("/", &[])).await.body, "1");
    }
    let mut bytes = 0;
    while let Some(piece) = in_time("the rest", down.data()).await {
        bytes += piece.expect("a stream that goes on").len();
        let used = down.flow_control().used_capacity();
        down.flow_control().release_capacity(used).unwrap();
    }
    assert_eq!(bytes, 100_000);
}

#[tokio::test]
async fn a_call_in_which_one_side_speaks_is_not_idle() {
    let beat = Duration::from_millis(50);
    let server = Server::start(100, move |_, request, mut reply| async move {
        let mut up = request.into_body();
        let mut body = reply.send_response(Response::new(()), false).unwrap();
        for _ in 0..40 {
            tokio::time::sleep(beat).await;
            if body.send_data(Bytes::from_static(b"x"), false).is_err() {
                return;
            }
        }
        drop(body.send_data(Bytes::from_static(b"!"), true));
        drop(up.data().await);
    })
    .await;
    let route = timed(server.upstream(), |waits| waits.idle = 30 * beat);
    let gateway = running(open(route)).await;
    let mut client = h2_client(&gateway).await;
    let (answer, _upload) = client.send_request(ask("POST", "/"), false).unwrap();
    let mut body = in_time("the header", answer).await.unwrap().into_body();
    let mut told = Vec::new();
    while let Some(piece) = in_time("what the server says", body.data()).await {
        told.extend_from_slice(&piece.expect("a call that goes on"));
    }
    assert_eq!(told, [&[b'x'; 40][..], b"!"].concat());
}

#[tokio::test]
async fn an_upload_that_stalls_is_its_clients_doing() {
    let server = Server::start(100, |connection, request, reply| async move {
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.data().await {}
        say(reply, connection);
    })
    .await;
    let route = timed(server.upstream(), |waits| {
        waits.first_byte = Duration::from_millis(100);
        waits.idle = Duration::from_millis(400);
    });
    let gateway = running(open(route)).await;
    let mut client = h2_client(&gateway).await;
    let (answer, mut upload) = client.send_request(ask("POST", "/"), false).unwrap();
    upload.send_data(Bytes::from_static(b"some"), false).unwrap();
    assert_eq!(in_time("a refusal", answer).await.unwrap().status(), 408);
}

#[tokio::test]
async fn an_upstream_that_says_goodbye_is_asked_over_a_new_connection() {
    let (leave, left) = watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream: Upstream = format!("h2c://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        for number in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            let mut left = left.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut leaves = false;
                loop {
                    if leaves {
                        connection.graceful_shutdown();
                    }
                    tokio::select! {
                        _ = left.wait_for(|left| *left), if number == 1 && !leaves => {
                            leaves = true;
                        }
                        accepted = connection.accept() => match accepted {
                            Some(Ok((_, reply))) => say(reply, number),
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    let gateway = running(open(to(upstream).retries(0))).await;
    assert_eq!(in_time("an answer", gateway.get("/", &[])).await.body, "1");
    leave.send_replace(true);
    until("the new connection", || async {
        let answer = in_time("an answer", gateway.client().await.ask("POST", "/", &[], "")).await;
        assert_eq!(answer.status, 200);
        answer.body == "2"
    })
    .await;
}

#[tokio::test]
async fn a_client_that_is_answered_before_it_has_sent_everything_gets_to_read_that() {
    let gateway = running(open(to("http://127.0.0.1:1".parse().unwrap()))).await;
    let mut client = h2_client(&gateway).await;
    let (answer, mut upload) = client.send_request(ask("POST", "/"), false).unwrap();
    upload.send_data(Bytes::from_static(&[b'x'; 10_000]), false).unwrap();
    let answer = in_time("a refusal", answer).await.unwrap();
    assert_eq!(answer.status(), 502);
    let mut body = answer.into_body();
    while let Some(piece) = in_time("the whole of it", body.data()).await {
        drop(piece.unwrap());
    }
    let reset = std::future::poll_fn(|cx| upload.poll_reset(cx));
    let at_once = tokio::time::timeout(Duration::from_millis(300), reset).await;
    assert!(at_once.is_err(), "many clients take a reset for a failure: {at_once:?}");
    let reset = in_time("the reset", std::future::poll_fn(|cx| upload.poll_reset(cx))).await;
    assert_eq!(reset.unwrap(), Reason::NO_ERROR, "a client that goes on sending is told to stop");
}
