//! Clients that hang up on answers which report their cost: the exchange, its permits and its connection's place end together, and what
//! goes on without a client is bounded.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Limit, Plan};
use spile_gateway::{Bounds, DetachedBounds, Gateway, RouteConcurrency, Timeouts};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::answer_costs::{Budget, DELTA, EVENTS, chunk, event, usage};
use crate::support::{RawBackend, Running, in_time, policy, read_until, running, to, under, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: g\r\n\r\n";
/// The metric of exchanges that go on without their client.
const DETACHED: &str = "gateway_detached_exchanges";

/// Streams that are open at an upstream.
#[derive(Clone, Copy, Debug, Default)]
struct Streams {
    now: usize,
    most: usize,
    all: usize,
}

/// An upstream that counts the streams that it has at once. Each sends one event, and costs 900 when all are told to finish.
struct Counting {
    backend: RawBackend,
    streams: Arc<Mutex<Streams>>,
    finish: watch::Sender<bool>,
}

impl Counting {
    async fn start() -> Self {
        let streams: Arc<Mutex<Streams>> = Arc::default();
        let (finish, finished) = watch::channel(false);
        let count = Arc::clone(&streams);
        let backend = RawBackend::start(move |mut stream| {
            let (count, mut finished) = (Arc::clone(&count), finished.clone());
            async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    if !stream.read_buf(&mut head).await.is_ok_and(|bytes| bytes > 0) {
                        return;
                    }
                }
                {
                    let mut count = count.lock();
                    (count.now, count.all) = (count.now + 1, count.all + 1);
                    count.most = count.most.max(count.now);
                }
                let first = format!("{EVENTS}{}", chunk(&event(DELTA)));
                drop(stream.write_all(first.as_bytes()).await);
                let last = format!("{}0\r\n\r\n", chunk(&event(&usage(900))));
                let is_finished = tokio::select! {
                    () = async { drop(finished.wait_for(|finished| *finished).await) } => true,
                    // Until the gateway hangs up.
                    _ = stream.read_u8() => false,
                };
                if is_finished {
                    drop(stream.write_all(last.as_bytes()).await);
                }
                count.lock().now -= 1;
            }
        });
        Self { backend: backend.await, streams, finish }
    }

    fn streams(&self) -> Streams {
        *self.streams.lock()
    }

    async fn comes_to_have(&self, now: usize) {
        until(&format!("{now} streams at the upstream"), || async { self.streams().now == now }).await;
    }
}

/// How a client hangs up on a stream that has begun.
#[derive(Clone, Copy, Debug)]
enum Client {
    Http1,
    /// With its connection.
    Http2,
    /// By a reset, on one connection for all streams.
    Reset,
}

impl Client {
    const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Reset];

    /// Begins a stream, waits for the first of its answer, and hangs up. Returns the status.
    async fn hang_up(
        self,
        gateway: &Running,
        shared: &mut Option<h2::client::SendRequest<bytes::Bytes>>,
    ) -> u16 {
        if let Self::Http1 = self {
            let mut client = TcpStream::connect(gateway.address).await.unwrap();
            client.write_all(GET).await.unwrap();
            let head = read_until(&mut client, "\r\n\r\n").await;
            return head[9..12].parse().unwrap();
        }
        let mut client = if let Some(client) = shared.take() {
            client
        } else {
            let stream = TcpStream::connect(gateway.address).await.unwrap();
            let (client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(async move { drop(connection.await) });
            client
        };
        let request = http::Request::get("http://g/").body(()).unwrap();
        let (answer, mut stream) = client.send_request(request, true).unwrap();
        let status = in_time("the head", answer).await.unwrap().status().as_u16();
        stream.send_reset(h2::Reason::CANCEL);
        *shared = Some(client).filter(|_| matches!(self, Self::Reset));
        status
    }
}

fn bounds(connections: usize) -> Bounds {
    let mut bounds = Bounds::default();
    bounds.connections = connections;
    bounds
}

#[tokio::test]
async fn hang_ups_leave_no_more_streams_than_there_are_connections() {
    for client in Client::ALL {
        let upstream = Counting::start().await;
        let route = to(upstream.backend.upstream()).estimate("100".parse().unwrap());
        let budget = Budget::within(route, "openai", |builder| builder.bounds(bounds(4))).await;
        let mut shared = None;
        for number in 1_usize..=12 {
            assert_eq!(client.hang_up(&budget.gateway, &mut shared).await, 200, "{client:?}");
            upstream.comes_to_have(number.min(2)).await;
        }
        let streams = upstream.streams();
        assert!(streams.most <= 4 && streams.all == 12, "{client:?}: {streams:?}");
        let cut = ["total", "connections"]
            .map(|why| budget.metrics.count(&format!("gateway_detached_cut_total {why}")));
        assert_eq!(cut.iter().sum::<u64>(), 10, "{client:?}: {cut:?}");
        assert!(budget.metrics.is_at(DETACHED, 2), "{client:?}");
        upstream.finish.send_replace(true);
        budget.comes_to(2 * 900 + 10 * 100).await;
        until("none to go on", || async { budget.metrics.is_at(DETACHED, 0) }).await;
    }
}

#[tokio::test]
async fn one_caller_has_a_share_of_what_goes_on_without_clients() {
    for client in Client::ALL {
        let upstream = Counting::start().await;
        let mut detached = DetachedBounds::default();
        detached.per_caller = 3;
        let route = to(upstream.backend.upstream());
        let budget = Budget::within(route, "openai", |builder| builder.detached(detached)).await;
        let mut shared = None;
        for number in 1_usize..=8 {
            client.hang_up(&budget.gateway, &mut shared).await;
            upstream.comes_to_have(number.min(3)).await;
        }
        assert!(upstream.streams().most <= 4, "{client:?}: {:?}", upstream.streams());
        assert_eq!(budget.metrics.count("gateway_detached_cut_total caller"), 5, "{client:?}");
        upstream.finish.send_replace(true);
        // Each of the others costs the size of its one event.
        let cut = event(DELTA).len().div_ceil(4) as u64;
        budget.comes_to(3 * 900 + 5 * cut).await;
    }
}

#[tokio::test]
async fn an_exchange_without_a_client_is_cut_when_its_time_is_over() {
    let upstream = Counting::start().await;
    let mut detached = DetachedBounds::default();
    detached.timeout = Duration::from_millis(50);
    let route = to(upstream.backend.upstream()).estimate("100".parse().unwrap());
    let budget = Budget::within(route, "openai", |builder| builder.detached(detached)).await;
    Client::Http1.hang_up(&budget.gateway, &mut None).await;
    upstream.comes_to_have(0).await;
    budget.counts("no_number").await;
    assert_eq!((budget.spent().await, budget.metrics.count("gateway_detached_cut_total time")), (100, 1));
}

#[tokio::test]
async fn the_place_of_a_connection_is_taken_until_its_exchange_has_ended() {
    let upstream = Counting::start().await;
    let budget =
        Budget::within(to(upstream.backend.upstream()), "openai", |builder| builder.bounds(bounds(1))).await;
    Client::Http1.hang_up(&budget.gateway, &mut None).await;
    until("it to go on", || async { budget.metrics.is_at(DETACHED, 1) }).await;
    let mut next = TcpStream::connect(budget.gateway.address).await.unwrap();
    next.write_all(GET).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), next.read_u8()).await;
    assert!(early.is_err() && upstream.streams().all == 1, "there is one place, and it is taken");
    upstream.finish.send_replace(true);
    read_until(&mut next, "0\r\n\r\n").await;
    assert_eq!(upstream.streams().most, 1);
    budget.comes_to(2 * 900).await;
}

#[tokio::test]
async fn hang_ups_leave_no_more_streams_than_a_concurrency_allows() {
    for client in Client::ALL {
        let upstream = Counting::start().await;
        let store = Arc::new(MemoryStore::new());
        let limiter = RateLimiter::builder().store(Arc::clone(&store)).build();
        let route = to(upstream.backend.upstream()).cost_from_response("openai".parse().unwrap());
        let jobs = Limit::concurrent(2).build().unwrap();
        let tokens = Limit::per_day(100_000).build().unwrap();
        let two = Plan::chain("gold", [("jobs", jobs), ("tokens", tokens)]).unwrap();
        let builder =
            Gateway::builder(limiter).route(route).policy(policy([two], [under("default", "gold")]));
        let gateway = running(builder).await;
        let mut shared = None;
        let mut statuses = Vec::new();
        for _ in 0..10 {
            statuses.push(client.hang_up(&gateway, &mut shared).await);
        }
        assert_eq!(statuses, [[200; 2].as_slice(), &[429; 8]].concat(), "{client:?}");
        assert_eq!((upstream.streams().most, store.usage().permits), (2, 2), "{client:?}");
        upstream.finish.send_replace(true);
        until("the permits to end with their exchanges", || async { store.usage().permits == 0 }).await;
        assert_eq!(client.hang_up(&gateway, &mut shared).await, 200, "{client:?}");
    }
}

#[tokio::test]
async fn a_request_whose_client_left_in_the_queue_is_not_sent_and_costs_nothing() {
    let upstream = Counting::start().await;
    let mut cap = RouteConcurrency::default();
    (cap.per_upstream, cap.per_caller) = (1, Some(1));
    let route = to(upstream.backend.upstream()).concurrency(cap).estimate("500".parse().unwrap());
    let budget = Budget::on(route, "openai").await;
    let mut first = budget.ask().await;
    upstream.comes_to_have(1).await;
    let queued = format!("gateway_queue_depth llm {}", upstream.backend.address);
    let second = budget.ask().await;
    until("the second to wait", || async { budget.metrics.is_at(&queued, 1) }).await;
    assert_eq!(budget.spent().await, 1_000);
    drop(second);
    until("the second to leave", || async { budget.metrics.is_at(&queued, 0) }).await;
    budget.comes_to(500).await;
    upstream.finish.send_replace(true);
    read_until(&mut first, "0\r\n\r\n").await;
    budget.comes_to(900).await;
    let third = budget.gateway.get("/", &[]).await;
    assert_eq!((third.status.as_u16(), upstream.streams().all), (200, 2), "the second was never sent");
}

#[tokio::test]
async fn a_client_that_hangs_up_before_the_head_leaves_an_exchange_that_is_bounded_too() {
    let (ask, mut asked) = mpsc::unbounded_channel();
    let silent = RawBackend::start(move |mut stream| {
        let ask = ask.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            ask.send(()).unwrap();
            while stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
        }
    })
    .await;
    let mut timeouts = Timeouts::default();
    timeouts.first_byte = Duration::from_secs(600);
    let mut detached = DetachedBounds::default();
    detached.per_caller = 2;
    let route = to(silent.upstream()).timeouts(timeouts).estimate("500".parse().unwrap());
    let mut cap = RouteConcurrency::default();
    (cap.per_upstream, cap.per_caller) = (100, Some(100));
    let budget = Budget::within(route.concurrency(cap), "openai", |builder| builder.detached(detached)).await;
    let in_use = format!("gateway_concurrency_in_use llm {}", silent.address);
    for number in 1_u32..=5 {
        let client = budget.ask().await;
        in_time("the upstream to be asked", asked.recv()).await.unwrap();
        drop(client);
        let cut = u64::from(number.saturating_sub(2));
        let is_cut = || async { budget.metrics.count("gateway_detached_cut_total caller") == cut };
        until("it to be cut, if it is one too many", is_cut).await;
        until("it to go on or to end", || async { budget.metrics.is_at(&in_use, number.min(2)) }).await;
    }
    until("two to go on", || async { budget.metrics.is_at(DETACHED, 2) }).await;
    assert_eq!(budget.spent().await, 5 * 500);
}
