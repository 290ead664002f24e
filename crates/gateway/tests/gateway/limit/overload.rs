//! Adaptive limits, and a concurrency cap that one caller cannot use up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use spile_core::FakeClock;
use spile_gateway::{Adaptive, Gateway, Route, RouteConcurrency};
use spile_limiter::{Observed, Observer, RateLimiter};
use spile_memory::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

use crate::support::{
    Backend, RawBackend, by_tenant_or_address, in_time, limiter_on, open, plan, policy, policy_for, running,
    tenant, text, to, until,
};

#[tokio::test]
async fn limits_shrink_while_the_upstream_fails_and_grow_back() {
    let backend = Backend::start(|seen| {
        let mut response = text("x");
        if seen.target == "/fail" {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        response
    })
    .await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .route(to(backend.upstream()).adaptive(Adaptive::default()))
            .policy(policy([plan("free", 100, 1)], [by_tenant_or_address("default")])),
    )
    .await;
    let mut client = gateway.client().await;
    for _ in 0..20 {
        assert_eq!(client.get("/fail", &[]).await.header("x-ratelimit-limit"), Some("100"));
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(client.get("/ok", &[]).await.header("x-ratelimit-limit"), Some("70"), "cut by the factor");
    clock.advance(Duration::from_secs(2));
    assert_eq!(
        client.get("/ok", &[]).await.header("x-ratelimit-limit"),
        Some("80"),
        "five hundredths a second"
    );
    clock.advance(Duration::from_secs(60));
    assert_eq!(client.get("/ok", &[]).await.header("x-ratelimit-limit"), Some("100"));
}

/// Responds to one request per permit, and reports whose it was.
async fn gated() -> (RawBackend, Arc<Semaphore>, mpsc::UnboundedReceiver<String>) {
    let gate = Arc::new(Semaphore::new(0));
    let (served, whose) = mpsc::unbounded_channel();
    let own = Arc::clone(&gate);
    let backend = RawBackend::start(move |mut stream| {
        let (gate, served) = (Arc::clone(&own), served.clone());
        async move {
            let mut buffer = Vec::new();
            while stream.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
                if !buffer.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let header = String::from_utf8_lossy(&std::mem::take(&mut buffer)).into_owned();
                let tenant =
                    header.lines().find_map(|line| line.strip_prefix("x-tenant-id: ")).unwrap_or("nobody");
                served.send(tenant.to_owned()).unwrap();
                gate.acquire().await.unwrap().forget();
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await);
            }
        }
    })
    .await;
    (backend, gate, whose)
}

/// Counts decisions. A request that was decided is in the queue before any other task runs.
#[derive(Clone, Default)]
struct Decided(Arc<AtomicUsize>);

impl Observer for Decided {
    fn decided(&self, _observed: &Observed<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn one_tenant_cannot_use_up_an_upstream() {
    let (backend, gate, mut served) = gated().await;
    let tenants = ["greedy", "modest"].map(|id| tenant(id, "free", id));
    let mut cap = RouteConcurrency::default();
    cap.per_upstream = 1;
    let decided = Decided::default();
    let limiter = RateLimiter::builder().store(MemoryStore::new()).observer(decided.clone()).build();
    let policy = policy_for([plan("free", 1_000, 1)], [by_tenant_or_address("default")], tenants);
    let gateway =
        running(Gateway::builder(limiter).route(to(backend.upstream()).concurrency(cap)).policy(policy))
            .await;
    let ask = |tenant: &'static str| {
        let address = gateway.address;
        tokio::spawn(async move {
            crate::support::Client::connect(address).await.get("/", &[("x-api-key", tenant)]).await.status
        })
    };
    let in_line = async |count: usize| {
        until("everybody to be in line", || async { decided.0.load(Ordering::SeqCst) == count }).await;
    };
    let first = ask("greedy");
    assert_eq!(in_time("the first", served.recv()).await.as_deref(), Some("greedy"));
    let mut others: Vec<_> = (0..10).map(|_| ask("greedy")).collect();
    in_line(11).await;
    others.push(ask("modest"));
    in_line(12).await;
    gate.add_permits(20);
    let mut order = Vec::new();
    for _ in 0..11 {
        order.push(in_time("the next", served.recv()).await.unwrap());
    }
    let turn = order.iter().position(|tenant| tenant == "modest").unwrap();
    assert_eq!(turn, 1, "one turn lies before the modest tenant: {order:?}");
    assert_eq!(first.await.unwrap(), 200);
    for other in others {
        assert_eq!(other.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn a_full_queue_is_a_503_that_says_when_to_retry() {
    let (backend, gate, mut served) = gated().await;
    let mut cap = RouteConcurrency::default();
    (cap.per_upstream, cap.queue) = (1, 0);
    let gateway = running(open(to(backend.upstream()).concurrency(cap))).await;
    let address = gateway.address;
    let first =
        tokio::spawn(
            async move { crate::support::Client::connect(address).await.get("/", &[]).await.status },
        );
    in_time("the first", served.recv()).await;
    let answer = gateway.get("/", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("1")));
    gate.add_permits(1);
    assert_eq!(first.await.unwrap(), 200);
}

#[tokio::test]
async fn no_request_is_turned_away_or_waits_while_another_upstream_has_a_place() {
    let (hung, _gate, mut asked) = gated().await;
    let steady = Backend::friendly().await;
    let mut cap = RouteConcurrency::default();
    (cap.per_upstream, cap.per_caller, cap.queue) = (2, Some(2), 0);
    let route = Route::new("/", [hung.upstream(), steady.upstream()]).unwrap().concurrency(cap);
    let gateway = running(open(route)).await;
    let mut held = Vec::new();
    while held.len() < 2 {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: g\r\n\r\n").await.unwrap();
        in_time("one upstream to be asked", async {
            tokio::select! {
                _ = asked.recv() => held.push(client),
                // The other upstream had its turn.
                _ = client.read_u8() => {}
            }
        })
        .await;
    }
    let mut client = gateway.client().await;
    for _ in 0..8 {
        assert_eq!(in_time("an answer", client.get("/", &[])).await.body, "hello");
    }
}

#[tokio::test]
async fn slow_uploads_of_one_client_leave_places_for_others() {
    let backend = Backend::friendly().await;
    let mut cap = RouteConcurrency::default();
    cap.per_upstream = 5;
    let decided = Decided::default();
    let limiter = RateLimiter::builder().store(MemoryStore::new()).observer(decided.clone()).build();
    let acme = tenant("acme", "free", "k-acme");
    let policy = policy_for([plan("free", 1_000, 1)], [by_tenant_or_address("default")], [acme]);
    let gateway =
        running(Gateway::builder(limiter).route(to(backend.upstream()).concurrency(cap)).policy(policy))
            .await;
    let mut uploads = Vec::new();
    for _ in 0..8 {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let upload = b"POST / HTTP/1.1\r\nhost: g\r\ncontent-length: 1000\r\n\r\nx";
        client.write_all(upload).await.unwrap();
        uploads.push(client);
    }
    until("the uploads to be under way", || async { decided.0.load(Ordering::SeqCst) == 8 }).await;
    let asked = gateway.get("/", &[("x-api-key", "k-acme")]);
    // Well below the time after which a waiting request is refused.
    let answer = tokio::time::timeout(cap.wait / 2, asked).await.expect("a place of its own");
    assert_eq!(answer.status, 200);
}
