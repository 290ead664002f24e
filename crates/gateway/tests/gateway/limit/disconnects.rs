//! Ten thousand clients that disconnect, in every phase of a request: none of them leaves a permit behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use spile_core::{Limit, Plan, Store};
use spile_gateway::{Gateway, Route, RouteConcurrency, Upstream};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_redis::RedisStore;
use spile_testkit::redis::{RedisReply, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{RawBackend, Running, in_time, policy, read_until, running, to, under};

const CLIENTS: usize = 10_000;
/// How many are there at once.
const AT_ONCE: usize = 250;
/// After the last client has gone, no permit is left when this time is over.
const GONE_WITHIN: Duration = Duration::from_millis(100);

/// When a client disconnects.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// In the middle of its header: no permit was taken.
    Header,
    /// While it is decided about, or soon after.
    Decision,
    /// In the middle of its body.
    Upload,
    /// In the queue of an upstream whose places are taken.
    Queue,
    /// While the upstream is silent.
    Silence,
    /// While the upstream is silent, with a next request behind the first.
    Pipelined,
    /// After one upstream has failed, while another is silent.
    Retry,
    /// In the middle of the answer.
    Download,
    /// In the middle of an answer that is read for its cost.
    Metered,
    /// While an upstream is silent whose answer is read for its cost.
    MeteredSilence,
    /// In a tunnel.
    Tunnel,
    /// After the last byte of the answer.
    End,
    /// By a reset of one stream of HTTP/2, and another with the connection.
    Streams,
}

impl Phase {
    const ALL: [Self; 13] = [
        Self::Header,
        Self::Decision,
        Self::Upload,
        Self::Queue,
        Self::Silence,
        Self::Pipelined,
        Self::Retry,
        Self::Download,
        Self::Metered,
        Self::MeteredSilence,
        Self::Tunnel,
        Self::End,
        Self::Streams,
    ];

    /// Sends a request, waits until it is in this phase, and disconnects.
    async fn run(self, gateway: SocketAddr) {
        if let Self::Streams = self {
            return reset_streams(gateway).await;
        }
        let mut client = TcpStream::connect(gateway).await.unwrap();
        client.write_all(self.request().as_bytes()).await.unwrap();
        match self {
            Self::Download | Self::Metered | Self::End => drop(read_until(&mut client, "half").await),
            Self::Tunnel => drop(read_until(&mut client, "\r\n\r\n").await),
            // Whatever the gateway is doing then: nothing tells the client.
            _ => tokio::time::sleep(Duration::from_micros(fastrand::u64(..5_000))).await,
        }
        if fastrand::bool() {
            // With a reset, and not with the polite end of a connection.
            client.set_zero_linger().unwrap();
        }
    }

    const fn request(self) -> &'static str {
        match self {
            Self::Header => "GET / HTTP/1.1\r\nHos",
            Self::Decision | Self::Silence | Self::Streams => "GET /silent HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::Upload => "POST /silent HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\nhalf",
            Self::Queue => "GET /queue HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::Pipelined => "GET /silent HTTP/1.1\r\nHost: g\r\n\r\nGET /next HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::Retry => "GET /retry HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::Download => "GET /half HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::Metered => "GET /metered/half HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::MeteredSilence => "GET /metered/silent HTTP/1.1\r\nHost: g\r\n\r\n",
            Self::Tunnel => {
                "GET /tunnel HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            }
            Self::End => "GET /whole HTTP/1.1\r\nHost: g\r\n\r\n",
        }
    }
}

/// Opens two streams of gRPC, resets one of them, and disconnects.
async fn reset_streams(gateway: SocketAddr) {
    let stream = TcpStream::connect(gateway).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut open = |path: &str| {
        let call = Request::post(format!("http://g{path}")).header("content-type", "application/grpc");
        client.send_request(call.body(()).unwrap(), false).unwrap()
    };
    let (silent, mut upload) = open("/h2/silent");
    let (answer, _upload) = open("/h2/half");
    let mut body = in_time("the head of a stream", answer).await.unwrap().into_body();
    assert_eq!(in_time("the half of a stream", body.data()).await.unwrap().unwrap(), "half");
    upload.send_reset(h2::Reason::CANCEL);
    drop(silent);
    connection.abort();
}

/// An upstream that does what the path says. Answers that are read for their cost break off when all clients have gone.
async fn backend(finished: &watch::Receiver<bool>) -> Upstream {
    let finished = finished.clone();
    let backend = RawBackend::start(move |mut stream| {
        let mut finished = finished.clone();
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if !stream.read_buf(&mut head).await.is_ok_and(|bytes| bytes > 0) || head.ends_with(b"half") {
                    break;
                }
            }
            let head = String::from_utf8_lossy(&head);
            let answer: &[u8] = match head.split(' ').nth(1) {
                Some("/half" | "/metered/half") => {
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half"
                }
                Some("/whole") => b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nhalf",
                Some("/tunnel") => {
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
                }
                Some("/retry") if fastrand::bool() => return,
                _ => b"",
            };
            let _sent = stream.write_all(answer).await;
            let hung_up = async { while stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {} };
            if head.starts_with("GET /metered") {
                // The gateway goes on without the client until the answer breaks off.
                tokio::select! {
                    () = hung_up => {}
                    () = async { drop(finished.wait_for(|finished| *finished).await) } => {}
                }
            } else {
                hung_up.await;
            }
        }
    });
    backend.await.upstream()
}

/// The same over HTTP/2.
async fn http2_backend() -> Upstream {
    let backend = RawBackend::start(|stream| async move {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            if request.uri().path() == "/h2/half"
                && let Ok(mut body) = respond.send_response(Response::new(()), false)
            {
                let _sent = body.send_data(Bytes::from_static(b"half"), false);
                tokio::spawn(async move { std::future::poll_fn(|cx| body.poll_reset(cx)).await });
            } else {
                tokio::spawn(async move { std::future::poll_fn(|cx| respond.poll_reset(cx)).await });
            }
        }
    });
    format!("h2c://{}", backend.await.address).parse().unwrap()
}

/// The gateway, and the end of the answers that are read for their cost.
async fn gateway<S: Store + 'static>(limiter: RateLimiter<S>) -> (Running, watch::Sender<bool>) {
    let (finish, finished) = watch::channel(false);
    let (one, two) = (backend(&finished).await, backend(&finished).await);
    let mut cap = RouteConcurrency::default();
    (cap.per_upstream, cap.per_caller) = (4, Some(4));
    let at = |path: &str| Route::new(path, [one.clone()]).unwrap();
    let jobs = Plan::new("jobs", Limit::concurrent(1_000_000).hold(Duration::from_secs(600))).unwrap();
    let builder = Gateway::builder(limiter)
        .route(to(one.clone()))
        .route(at("/queue").concurrency(cap))
        .route(Route::new("/h2", [http2_backend().await]).unwrap())
        .route(at("/metered").cost_from_response("json:/cost".parse().unwrap()))
        .route(Route::new("/retry", [one.clone(), two]).unwrap().retries(2))
        .policy(policy([jobs], [under("default", "jobs")]));
    (running(builder).await, finish)
}

/// Lets all clients come and go, and looks for permits that they have left.
async fn leave_none((gateway, finish): &(Running, watch::Sender<bool>), held: impl Fn() -> usize) {
    let (mut clients, mut most_held) = (JoinSet::new(), 0);
    for number in 0..CLIENTS {
        clients.spawn(Phase::ALL[number % Phase::ALL.len()].run(gateway.address));
        if clients.len() == AT_ONCE {
            in_time("a client to be done", clients.join_next()).await.unwrap().unwrap();
        }
        if number % 500 == 499 {
            most_held = most_held.max(held());
        }
    }
    while let Some(done) = in_time("a client to be done", clients.join_next()).await {
        done.unwrap();
    }
    assert!(most_held > 0, "permits are held while clients are there");
    finish.send_replace(true);
    tokio::time::sleep(GONE_WITHIN).await;
    assert_eq!(held(), 0, "permits are left of {most_held} that were held at once");
}

/// What became of the permits: how many were taken, and how many of them were released.
fn taken_and_released<S: Store>(limiter: &RateLimiter<S>) -> (u64, u64) {
    let counts = limiter.permit_stats().into_values().next().expect("a limit that was asked");
    (counts.acquired, counts.released)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_disconnects_leave_no_permit_in_the_embedded_store() {
    let store = Arc::new(MemoryStore::new());
    let limiter = RateLimiter::builder().store(Arc::clone(&store)).build();
    let gateway = gateway(limiter.clone()).await;
    leave_none(&gateway, || store.usage().permits).await;
    let (taken, released) = taken_and_released(&limiter);
    assert!(taken >= CLIENTS as u64 / 2 && taken == released, "{taken} taken, {released} released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_disconnects_leave_no_permit_in_redis() {
    let redis = RedisServer::start();
    let limiter = RateLimiter::builder().store(RedisStore::builder(redis.url()).build().unwrap()).build();
    let gateway = gateway(limiter.clone()).await;
    let client = Mutex::new(redis.connect().unwrap());
    let held = || {
        let mut redis = client.lock();
        let sets = redis.command(&["KEYS", "*jobs*"]).unwrap();
        let count = |set: &RedisReply| redis.command(&["ZCARD", set.text()]).unwrap().int();
        sets.list().iter().map(count).sum::<i64>() as usize
    };
    leave_none(&gateway, held).await;
    let (taken, released) = taken_and_released(&limiter);
    assert!(taken >= CLIENTS as u64 / 4 && taken == released, "{taken} taken, {released} released");
}
