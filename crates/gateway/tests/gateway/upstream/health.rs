//! Passive health: upstreams are ejected for what they do, not for what clients, the gateway's queue or the clock do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spile_core::FakeClock;
use spile_gateway::{Adaptive, Gateway, Route, RouteConcurrency, Timeouts, Upstream};
use spile_limiter::TokioClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use crate::support::{
    Backend, Metrics, RawBackend, Running, by_tenant_or_address, in_time, limiter_on, metered, open, plan,
    policy, running, text, to, until,
};

/// An upstream that responds until it is told to hang.
struct Moody {
    backend: Backend,
    hangs: Arc<AtomicBool>,
}

impl Moody {
    async fn start() -> Self {
        let hangs = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&hangs);
        let backend = Backend::start_async(move |_| {
            let hangs = state.load(Ordering::SeqCst);
            async move { if hangs { std::future::pending().await } else { text("moody") } }
        })
        .await;
        Self { backend, hangs }
    }

    fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    fn over(&self, scheme: &str) -> Upstream {
        format!("{scheme}://{}", self.backend.address).parse().unwrap()
    }

    fn up(&self, metrics: &Metrics) -> bool {
        metrics.gauge(&format!("gateway_upstream_up / {}", self.backend.address)) > 0.5
    }
}

fn first_byte(wait_ms: u64) -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.first_byte = Duration::from_millis(wait_ms);
    timeouts
}

/// Sends a request and disconnects without waiting for the response.
async fn leave(gateway: &Running, path: &str, after: Duration) {
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: g\r\n\r\n").as_bytes()).await.unwrap();
    // If the response comes nevertheless, the client disconnects then.
    let _left = tokio::time::timeout(after, client.read(&mut [0; 16])).await;
}

#[tokio::test]
async fn an_upstream_that_hangs_is_ejected_whatever_it_speaks_and_though_its_connections_stand() {
    let ejected_over = |scheme: &'static str| async move {
        let (moody, steady) = (Moody::start().await, Backend::friendly().await);
        let route = Route::new("/", [moody.over(scheme), steady.upstream()]).unwrap();
        let (gateway, metrics) = metered(open(route.timeouts(first_byte(400)))).await;
        let mut client = gateway.client().await;
        for _ in 0..4 {
            assert_eq!(client.get("/", &[]).await.status, 200, "connections stand to both");
        }
        moody.hang(true);
        let mut late = 0;
        for _ in 0..40 {
            late += u32::from(in_time("an answer", client.get("/", &[])).await.status == 504);
        }
        assert_eq!(late, 5, "over {scheme}");
        assert!(!moody.up(&metrics), "the gauge shows it");
    };
    tokio::join!(ejected_over("http"), ejected_over("h2c"));
}

#[tokio::test]
async fn an_upstream_that_hangs_is_ejected_though_no_client_waits_for_the_timeout() {
    let ejected_over = |scheme: &'static str| async move {
        let (moody, steady) = (Moody::start().await, Backend::friendly().await);
        let route = Route::new("/", [moody.over(scheme), steady.upstream()]).unwrap();
        let (gateway, metrics) = metered(open(route.timeouts(first_byte(2_000)))).await;
        moody.hang(true);
        let mut asked = 0;
        while moody.up(&metrics) {
            asked += 1;
            assert!(asked <= 60, "half of the requests hang, and a second of waiting is enough");
            leave(&gateway, "/", Duration::from_millis(200)).await;
        }
        let mut client = gateway.client().await;
        for _ in 0..10 {
            assert_eq!(in_time("an answer", client.get("/", &[])).await.body, "hello");
        }
        assert!(metrics.count("gateway_upstream_failures_total / abandoned") >= 5);
        assert!(metrics.count("http_server_requests_total gateway 499") >= 5);
    };
    tokio::join!(ejected_over("http"), ejected_over("h2c"));
}

#[tokio::test]
async fn clients_in_a_hurry_cannot_eject_upstreams_that_are_merely_slow() {
    let slow = || async {
        Backend::start_async(|_| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            text("slow")
        })
        .await
    };
    let upstreams = [slow().await, slow().await];
    let route = Route::new("/", upstreams.iter().map(Backend::upstream)).unwrap();
    let (gateway, metrics) = metered(open(route)).await;
    for _ in 0..4 {
        let clients = (0..12).map(|_| leave(&gateway, "/", Duration::from_millis(50)));
        futures_util::future::join_all(clients).await;
    }
    let unanswered = || async { metrics.count("gateway_upstream_failures_total / abandoned") >= 24 };
    until("the gateway to notice that they left", unanswered).await;
    for slow in &upstreams {
        assert!(metrics.gauge(&format!("gateway_upstream_up / {}", slow.address)) > 0.5);
    }
    assert_eq!(gateway.get("/", &[]).await.body, "slow");
}

#[tokio::test]
async fn clients_in_a_hurry_cannot_eject_an_upstream_that_answers_others() {
    let slow = Backend::start_async(|seen| async move {
        if seen.target == "/slow" { std::future::pending().await } else { text("quick") }
    })
    .await;
    let (gateway, metrics) = metered(open(to(slow.upstream()))).await;
    let mut client = gateway.client().await;
    for _ in 0..30 {
        leave(&gateway, "/slow", Duration::from_millis(20)).await;
        assert_eq!(client.get("/", &[]).await.body, "quick");
    }
    let up = format!("gateway_upstream_up / {}", slow.address);
    assert!(metrics.gauge(&up) > 0.5);
}

#[tokio::test]
async fn the_end_of_all_time_counts_as_a_timeout_of_the_upstream() {
    let moody = Moody::start().await;
    moody.hang(true);
    let mut timeouts = Timeouts::default();
    timeouts.total = Some(Duration::from_millis(200));
    let (gateway, metrics) = metered(open(to(moody.over("http")).timeouts(timeouts))).await;
    let mut client = gateway.client().await;
    for _ in 0..5 {
        assert!(moody.up(&metrics));
        assert_eq!(in_time("an answer", client.get("/", &[])).await.status, 504);
    }
    assert_eq!(metrics.count("gateway_upstream_failures_total / timed_out"), 5);
    assert!(!moody.up(&metrics));
    moody.hang(false);
    assert_eq!(client.get("/", &[]).await.status, 200, "where all are ejected, a try is better than none");
    assert!(moody.up(&metrics), "and an answer ends the ejection");
}

#[tokio::test]
async fn an_upload_that_stalls_is_the_clients_doing_and_ejects_no_upstream() {
    let stall = |scheme: &'static str, total: Option<Duration>| async move {
        let moody = Moody::start().await;
        let mut timeouts = first_byte(200);
        (timeouts.idle, timeouts.total) = (Duration::from_secs(1), total);
        let (gateway, metrics) = metered(open(to(moody.over(scheme)).timeouts(timeouts))).await;
        let upload = || async {
            let mut client = TcpStream::connect(gateway.address).await.unwrap();
            client.write_all(b"POST / HTTP/1.1\r\nhost: g\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
            let mut answer = [0; 12];
            in_time("an answer", client.read_exact(&mut answer)).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 408", "over {scheme}, {total:?}");
        };
        futures_util::future::join_all((0..6).map(|_| upload())).await;
        assert!(moody.up(&metrics), "over {scheme}");
        assert_eq!(metrics.count("gateway_upstream_failures_total / timed_out"), 0);
    };
    tokio::join!(
        stall("http", None),
        stall("h2c", None),
        stall("http", Some(Duration::from_millis(700))),
        stall("h2c", Some(Duration::from_millis(700)))
    );
}

#[tokio::test]
async fn the_time_that_uploads_take_does_not_cut_limits() {
    const UPLOADS: usize = 20;
    let (half, mut halves) = tokio::sync::mpsc::unbounded_channel();
    let backend = RawBackend::start(move |stream| answer_when_whole(stream, half.clone())).await;
    let mut adaptive = Adaptive::default();
    adaptive.target_latency = Duration::from_secs(10);
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .clock(TokioClock::new())
            .route(to(backend.upstream()).adaptive(adaptive))
            .policy(policy([plan("free", 100, 1)], [by_tenant_or_address("default")])),
    )
    .await;
    let mut clients = Vec::new();
    for _ in 0..UPLOADS {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(b"POST / HTTP/1.1\r\nhost: g\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        in_time("the first half", halves.recv()).await.unwrap();
        clients.push(client);
    }
    // The time that clients take, which is longer than the route's target latency.
    pass(Duration::from_secs(20)).await;
    for client in &mut clients {
        client.write_all(b" a bod").await.unwrap();
        let mut answer = [0; 12];
        in_time("an answer", client.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    pass(adaptive.window).await;
    assert_eq!(gateway.get("/", &[]).await.header("x-ratelimit-limit"), Some("100"));
}

/// Reports when half of an upload has arrived, and responds when all of it has.
async fn answer_when_whole(mut stream: TcpStream, half: UnboundedSender<()>) {
    let mut seen = Vec::new();
    while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {
        if seen.ends_with(b"half") {
            half.send(()).unwrap();
        } else if seen.ends_with(b"half a bod") || seen.starts_with(b"GET") && seen.ends_with(b"\r\n\r\n") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            seen.clear();
        }
    }
}

/// Advances tokio's clock.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn our_own_queue_does_not_cut_limits() {
    let (asked, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let hung = RawBackend::start(move |mut stream| {
        let asked = asked.clone();
        async move {
            drop(stream.read(&mut [0; 1024]).await);
            asked.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let (clock, mut cap) = (FakeClock::default(), RouteConcurrency::default());
    (cap.per_upstream, cap.queue) = (1, 0);
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .route(to(hung.upstream()).adaptive(Adaptive::default()).concurrency(cap))
            .policy(policy([plan("free", 100, 1)], [by_tenant_or_address("default")])),
    )
    .await;
    let mut first = TcpStream::connect(gateway.address).await.unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nhost: g\r\n\r\n").await.unwrap();
    in_time("the first request", seen.recv()).await.unwrap();
    let mut client = gateway.client().await;
    for _ in 0..20 {
        assert_eq!(client.get("/", &[]).await.status, 503);
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(client.get("/", &[]).await.header("x-ratelimit-limit"), Some("100"));
}

#[tokio::test]
async fn a_clock_that_is_put_back_keeps_no_upstream_out() {
    let (moody, steady) = (Moody::start().await, Backend::friendly().await);
    let clock = FakeClock::default();
    let route = Route::new("/", [moody.over("http"), steady.upstream()]).unwrap();
    let gateway = running(open(route.timeouts(first_byte(400))).clock(clock.clone())).await;
    let mut client = gateway.client().await;
    moody.hang(true);
    for _ in 0..20 {
        in_time("an answer", client.get("/", &[])).await;
    }
    moody.hang(false);
    let before = moody.backend.seen().len();
    for _ in 0..10 {
        assert_eq!(client.get("/", &[]).await.body, "hello", "it is ejected");
    }
    clock.step_back(Duration::from_secs(3_600));
    for _ in 0..10 {
        assert_eq!(client.get("/", &[]).await.status, 200);
    }
    assert_eq!(moody.backend.seen().len(), before + 5, "half of the requests are its own again");
}
