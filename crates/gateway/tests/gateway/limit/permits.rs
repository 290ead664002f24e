//! Permits: a request under a concurrency holds one until its last byte, and no request holds one after its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use spile_core::{Charges, Cost, Inspect, Key, Limit, Plan};
use spile_gateway::{Bounds, Gateway, Route, RouteConcurrency, Timeouts, Upstream};
use spile_limiter::{Ask, RateLimiter};
use spile_memory::MemoryStore;
use spile_policy::Rule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::support::{Backend, RawBackend, Running, in_time, policy, read_until, running, to, under, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: g\r\n\r\n";

/// How long a permit may be held after its client has gone.
const GONE_WITHIN: Duration = Duration::from_millis(100);

/// A gateway whose callers may have two requests at work, and its store.
struct Jobs {
    gateway: Running,
    limiter: RateLimiter<Arc<MemoryStore>>,
}

impl Jobs {
    async fn on(route: Route) -> Self {
        Self::under(route, [under("default", "gold")]).await
    }

    async fn under<const N: usize>(route: Route, rules: [Rule; N]) -> Self {
        let limiter = RateLimiter::builder().store(Arc::new(MemoryStore::new())).build();
        let mut bounds = Bounds::default();
        bounds.drain = Duration::from_millis(100);
        let builder = Gateway::builder(limiter.clone()).bounds(bounds).route(route);
        let builder = builder.policy(policy(plans(), rules));
        Self { gateway: running(builder).await, limiter }
    }

    /// Sends these bytes on a connection of their own.
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.gateway.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        client
    }

    fn held(&self) -> usize {
        self.limiter.store().usage().permits
    }

    /// In whose name the one caller's permits are held.
    async fn holders(&self) -> Vec<String> {
        let (key, _) = self.limiter.holding_most(1).remove(0);
        let charge = Charges::one(Key::new(&key).unwrap(), &plans()[0].limits()[1], Cost::ONE).unwrap();
        let held = self.limiter.store().holders(&charge).await.unwrap().remove(0);
        held.iter().map(|permit| permit.id.holder().unwrap_or_default().to_owned()).collect()
    }

    async fn comes_to_hold(&self, permits: usize) {
        until(&format!("{permits} permits to be held"), || async { self.held() == permits }).await;
    }

    /// Hangs up, and waits until the permit is gone.
    async fn hang_up(&self, client: TcpStream, phase: &str) {
        assert_eq!(self.held(), 1, "{phase}");
        drop(client);
        let gone = tokio::time::timeout(GONE_WITHIN, self.comes_to_hold(0)).await;
        assert!(gone.is_ok(), "{phase}: the permit is still held after {GONE_WITHIN:?}");
    }
}

fn plans() -> [Plan; 2] {
    let daily = Limit::per_day(1_000).build().unwrap();
    let gold = [("daily", daily), ("jobs", Limit::concurrent(2).build().unwrap())];
    [Plan::chain("gold", gold).unwrap(), Plan::new("all", Limit::concurrent(5)).unwrap()]
}

/// An upstream that tells of each request, and answers it with what the test sends. It hangs up if that is empty.
struct Told {
    backend: RawBackend,
    asked: mpsc::UnboundedReceiver<mpsc::UnboundedSender<&'static str>>,
}

impl Told {
    async fn start() -> Self {
        let (tell, asked) = mpsc::unbounded_channel();
        let backend = RawBackend::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                loop {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { return };
                        head.push(byte);
                    }
                    let (answer, mut pieces) = mpsc::unbounded_channel::<&'static str>();
                    let _gone = tell.send(answer);
                    while let Some(piece) = pieces.recv().await {
                        if piece.is_empty() || stream.write_all(piece.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Self { backend: backend.await, asked }
    }

    fn upstream(&self) -> Upstream {
        self.backend.upstream()
    }

    /// The next request, to be answered.
    async fn asked(&mut self) -> mpsc::UnboundedSender<&'static str> {
        in_time("a request to reach the upstream", self.asked.recv()).await.unwrap()
    }
}

/// The first half of an answer.
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst";

#[tokio::test]
async fn a_permit_is_held_until_the_last_byte_and_a_third_request_is_told_that_two_are_at_work() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream())).await;
    let (mut first, _second) = (jobs.send(GET).await, jobs.send(GET).await);
    let answer = told.asked().await;
    let _silent = told.asked().await;
    assert_eq!(jobs.held(), 2, "before there is an answer");

    let denied = jobs.gateway.get("/", &[]).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, Some("1")));
    let policies = "\"gold/daily\";q=1000;w=86400, \"gold/jobs\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(denied.header("ratelimit-policy"), Some(policies));
    assert_eq!(denied.header("ratelimit"), Some("\"gold/daily\";r=998, \"gold/jobs\";r=0"));
    assert_eq!(
        (denied.header("x-ratelimit-limit"), denied.header("x-ratelimit-remaining")),
        (Some("2"), Some("0"))
    );
    let message = "Too many requests at once: the concurrency limit is 2. Please retry after 1 second.";
    assert_eq!(denied.json()["message"], message);
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["gold/jobs"]));
    let call = jobs.gateway.get("/", &[("content-type", "application/grpc")]).await;
    assert_eq!((call.header("grpc-status"), call.header("grpc-message")), (Some("8"), Some(message)));

    answer.send(HALF).unwrap();
    let head = read_until(&mut first, "first").await;
    assert!(head.contains("ratelimit: \"gold/daily\";r=999;t=87, \"gold/jobs\";r=1\r\n"), "{head}");
    assert_eq!(jobs.held(), 2, "half of the answer is there");
    answer.send("again").unwrap();
    read_until(&mut first, "again").await;
    jobs.comes_to_hold(1).await;
    assert_eq!(jobs.limiter.permit_stats().values().map(|counts| counts.lost).sum::<u64>(), 0);
}

#[tokio::test]
async fn a_permit_is_held_in_the_name_of_the_request() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream())).await;
    let mut client = jobs.send(GET).await;
    let answer = told.asked().await;
    let [holder] = &jobs.holders().await[..] else { panic!("one is held") };
    answer.send(HALF).unwrap();
    let head = read_until(&mut client, "first").await;
    assert!(head.contains(&format!("x-request-id: {holder}\r\n")), "{holder}: {head}");
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_permit_in_every_phase_of_a_request() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream())).await;
    let client = jobs.send(GET).await;
    let _silent = told.asked().await;
    jobs.hang_up(client, "before the head of the answer").await;

    let mut client = jobs.send(GET).await;
    told.asked().await.send(HALF).unwrap();
    read_until(&mut client, "first").await;
    jobs.hang_up(client, "in the middle of the answer").await;

    let client = jobs.send(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 9\r\n\r\nhalf").await;
    let _silent = told.asked().await;
    jobs.hang_up(client, "in the middle of its body").await;

    let mut client = jobs.send(GET).await;
    told.asked().await.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    jobs.comes_to_hold(0).await;
}

/// The head of a request, and so much of its body that the gateway leaves a part of it unread.
fn large_upload(path: &str) -> Vec<u8> {
    let mut upload = format!("POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: 50000\r\n\r\n").into_bytes();
    upload.resize(upload.len() + 40_000, b'x');
    upload
}

#[tokio::test]
async fn a_client_that_hangs_up_behind_a_request_that_is_not_read_yet_ends_its_permit() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream())).await;
    for next in ["G", "GET /next HTTP/1.1\r\nHost: g\r\n\r\n", &"\r\n".repeat(30_000)] {
        let requests = [GET, next.as_bytes()].concat();
        let client = jobs.send(&requests).await;
        let _silent = told.asked().await;
        jobs.hang_up(client, "before the head of the answer").await;

        let mut client = jobs.send(&requests).await;
        told.asked().await.send(HALF).unwrap();
        read_until(&mut client, "first").await;
        jobs.hang_up(client, "in the middle of the answer").await;

        let client = jobs.send(&requests).await;
        let _silent = told.asked().await;
        client.set_zero_linger().unwrap();
        jobs.hang_up(client, "with a reset").await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_behind_a_body_that_is_not_read_ends_its_permit() {
    let jobs = Jobs::on(to(streaming(0).await)).await;
    let client = jobs.send(&large_upload("/silent")).await;
    jobs.comes_to_hold(1).await;
    jobs.hang_up(client, "before the head of the answer").await;
    let mut client = jobs.send(&large_upload("/")).await;
    read_until(&mut client, "first").await;
    jobs.hang_up(client, "in the middle of the answer").await;

    let mut told = Told::start().await;
    let mut cap = RouteConcurrency::default();
    cap.per_upstream = 1;
    let jobs = Jobs::on(to(told.upstream()).concurrency(cap)).await;
    let first = jobs.send(GET).await;
    let _silent = told.asked().await;
    let queued = jobs.send(&large_upload("/")).await;
    jobs.comes_to_hold(2).await;
    drop(queued);
    let gone = tokio::time::timeout(GONE_WITHIN, jobs.comes_to_hold(1)).await;
    assert!(gone.is_ok(), "in the queue");
    jobs.hang_up(first, "at the upstream").await;
}

#[tokio::test]
async fn a_client_that_stays_gets_all_its_answers_in_order_and_sends_its_whole_body() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream())).await;
    let mut client = jobs.send(&GET.repeat(3)).await;
    for answer in ["one", "two", "six"] {
        let upstream = told.asked().await;
        upstream.send("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n").unwrap();
        // The next request lies unread while this answer is under way.
        read_until(&mut client, "\r\n\r\n").await;
        client.write_all(GET).await.unwrap();
        upstream.send(answer).unwrap();
        read_until(&mut client, answer).await;
    }
    drop(client);

    let (read_on, wait) = tokio::sync::watch::channel(false);
    let backend = RawBackend::start(move |mut stream| {
        let mut wait = wait.clone();
        async move {
            drop(wait.wait_for(|read_on| *read_on).await);
            let mut bytes = 0;
            while let Ok(read @ 1..) = stream.read(&mut [0; 16_384]).await {
                bytes += read;
                if bytes > 40_000_000 {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nread";
                    stream.write_all(answer).await.unwrap();
                    return;
                }
            }
        }
    });
    let jobs = Jobs::on(to(backend.await.upstream())).await;
    let mut client = jobs.send(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 40000000\r\n\r\n").await;
    // More than all buffers on the way hold.
    let body = vec![b'x'; 40_000_000];
    let mut sent = 0;
    while sent < body.len()
        && let Ok(bytes) = tokio::time::timeout(GONE_WITHIN, client.write(&body[sent..])).await
    {
        sent += bytes.unwrap();
    }
    assert!(sent < body.len(), "the upstream does not read");
    assert_eq!(jobs.held(), 1);
    read_on.send(true).unwrap();
    in_time("the rest to be sent", client.write_all(&body[sent..])).await.unwrap();
    read_until(&mut client, "read").await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_early_is_taken_for_gone_whether_or_not_all_of_it_was_read() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream())).await;
    for requests in [1, 2, 3] {
        let mut client = jobs.send(&GET.repeat(requests)).await;
        let _silent = told.asked().await;
        client.shutdown().await.unwrap();
        let gone = tokio::time::timeout(GONE_WITHIN, jobs.comes_to_hold(0)).await;
        assert!(gone.is_ok(), "{requests} requests");
        let mut answer = String::new();
        // The connection ends with a reset if requests were left.
        let _ended = in_time("the connection to end", client.read_to_string(&mut answer)).await;
        assert_eq!(answer, "", "{requests} requests");
    }
    let mut client = jobs.send(&large_upload("/")).await;
    let _silent = told.asked().await;
    client.shutdown().await.unwrap();
    let answer = read_until(&mut client, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "a body that broke off is still answered: {answer}");
    jobs.comes_to_hold(0).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_queue_or_during_a_retry_ends_its_permit() {
    let mut told = Told::start().await;
    let mut cap = RouteConcurrency::default();
    cap.per_upstream = 1;
    let jobs = Jobs::on(to(told.upstream()).concurrency(cap)).await;
    let first = jobs.send(GET).await;
    let _silent = told.asked().await;
    let queued = jobs.send(GET).await;
    jobs.comes_to_hold(2).await;
    drop(queued);
    jobs.comes_to_hold(1).await;
    jobs.hang_up(first, "at the upstream").await;

    let (mut one, mut two) = (Told::start().await, Told::start().await);
    let route = Route::new("/", [one.upstream(), two.upstream()]).unwrap().retries(1);
    let jobs = Jobs::on(route).await;
    let client = jobs.send(GET).await;
    let (fails, other) = tokio::select! {
        answer = one.asked() => (answer, &mut two),
        answer = two.asked() => (answer, &mut one),
    };
    fails.send("").unwrap();
    let _silent = other.asked().await;
    jobs.hang_up(client, "at the second upstream").await;
}

#[tokio::test]
async fn a_request_that_is_refused_after_it_got_a_permit_gives_it_back() {
    let told = Told::start().await;
    let refused = async |route: Route, bytes: &[u8], status: &str| {
        let jobs = Jobs::on(route).await;
        let mut client = jobs.send(bytes).await;
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(head.contains("\"gold/jobs\";r=1"), "it had a permit: {head}");
        jobs.comes_to_hold(0).await;
    };
    let nobody: Upstream = "http://127.0.0.1:1".parse().unwrap();
    refused(to(nobody), GET, "502").await;
    refused(to(told.upstream()).require_auth(true), GET, "401").await;
    let upload = b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 9\r\n\r\nhalf";
    refused(to(told.upstream()).max_body(4), upload, "413").await;
    let mut timeouts = Timeouts::default();
    timeouts.first_byte = Duration::from_millis(50);
    refused(to(told.upstream()).timeouts(timeouts), GET, "504").await;
    refused(to(RawBackend::saying(b"").await.upstream()), GET, "502").await;
}

#[tokio::test]
async fn an_upstream_that_fails_in_the_middle_or_falls_silent_ends_the_permit() {
    let mut told = Told::start().await;
    let mut timeouts = Timeouts::default();
    timeouts.idle = Duration::from_millis(100);
    let jobs = Jobs::on(to(told.upstream()).timeouts(timeouts)).await;
    for end in ["", "(silence)"] {
        let mut client = jobs.send(GET).await;
        let answer = told.asked().await;
        answer.send(HALF).unwrap();
        read_until(&mut client, "first").await;
        if end.is_empty() {
            answer.send(end).unwrap();
        }
        in_time("the answer to break off", client.read_to_end(&mut Vec::new())).await.unwrap();
        jobs.comes_to_hold(0).await;
    }
}

#[tokio::test]
async fn a_tunnel_holds_its_permit_until_either_side_closes_it_or_the_gateway_stops() {
    const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    const SWITCH: &str =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut told = Told::start().await;
    let plain = to(told.upstream());
    let settled = to(told.upstream()).cost_from_response("header:x-cost".parse().unwrap());
    for route in [plain, settled.upgrade_cost("bytes/4".parse().unwrap())] {
        let mut jobs = Jobs::on(route).await;
        let mut tunnels = Vec::new();
        for _ in 0..2 {
            let mut client = jobs.send(UPGRADE).await;
            let upstream = told.asked().await;
            upstream.send(SWITCH).unwrap();
            read_until(&mut client, "\r\n\r\n").await;
            upstream.send("hello").unwrap();
            read_until(&mut client, "hello").await;
            tunnels.push((client, upstream));
        }
        assert_eq!(jobs.held(), 2);
        let (mut client, upstream) = tunnels.pop().unwrap();
        upstream.send("").unwrap();
        assert_eq!(in_time("the upstream to hang up", client.read(&mut [0])).await.unwrap(), 0);
        assert_eq!(jobs.held(), 2, "the client may still send");
        drop(client);
        jobs.comes_to_hold(1).await;
        // The upstream waits for the client's next bytes, and hangs up as the client does.
        let (client, upstream) = tunnels.pop().unwrap();
        drop((client, upstream));
        jobs.comes_to_hold(0).await;

        let mut client = jobs.send(UPGRADE).await;
        told.asked().await.send(SWITCH).unwrap();
        read_until(&mut client, "\r\n\r\n").await;
        assert_eq!(jobs.held(), 1);
        let stopped = jobs.gateway.stop();
        jobs.comes_to_hold(0).await;
        drop(client);
        in_time("the gateway to stop", stopped).await.unwrap();
    }
}

/// An HTTP/2 upstream that sends a head and a first message, and then waits for the stream to end. It takes this many
/// bytes of a body.
async fn streaming(window: u32) -> Upstream {
    let backend = RawBackend::start(move |stream| async move {
        let mut server = h2::server::Builder::new();
        server.initial_window_size(window);
        let Ok(mut connection) = server.handshake::<_, Bytes>(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            if request.uri().path() == "/silent" {
                tokio::spawn(async move { std::future::poll_fn(|cx| respond.poll_reset(cx)).await });
                continue;
            }
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"first"), false).unwrap();
            tokio::spawn(async move { std::future::poll_fn(|cx| body.poll_reset(cx)).await });
        }
    });
    format!("h2c://{}", backend.await.address).parse().unwrap()
}

#[tokio::test]
async fn a_stream_of_http_2_or_grpc_that_is_reset_ends_its_permit_and_no_other() {
    let jobs = Jobs::on(to(streaming(65_535).await)).await;
    let stream = TcpStream::connect(jobs.gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut call = |path: &str| {
        let request = Request::post(format!("http://g{path}")).header("content-type", "application/grpc");
        client.send_request(request.body(()).unwrap(), false).unwrap()
    };
    let (answer, mut upload) = call("/silent");
    jobs.comes_to_hold(1).await;
    upload.send_reset(h2::Reason::CANCEL);
    jobs.comes_to_hold(0).await;
    drop(answer);

    let (answer, _open) = call("/one");
    let (other, mut upload) = call("/two");
    let mut bodies = Vec::new();
    for answer in [answer, other] {
        let mut body = in_time("a head", answer).await.unwrap().into_body();
        assert_eq!(in_time("a message", body.data()).await.unwrap().unwrap(), "first");
        bodies.push(body);
    }
    assert_eq!(jobs.held(), 2);
    upload.send_reset(h2::Reason::CANCEL);
    jobs.comes_to_hold(1).await;
    connection.abort();
    jobs.comes_to_hold(0).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_on_an_answer_that_is_read_for_its_cost_keeps_its_permit_until_its_end() {
    let mut told = Told::start().await;
    let jobs = Jobs::on(to(told.upstream()).cost_from_response("json:/cost".parse().unwrap())).await;
    let left = async || {
        let owed = policy(plans(), []).owed_by_plans("ip:127.0.0.1", ["gold"], 0).unwrap();
        let ruling = jobs.limiter.decide(Ask::from(&owed).peeking()).await;
        ruling.into_decision().unwrap().limits()[0].remaining()
    };
    let client = jobs.send(GET).await;
    let answer = told.asked().await;
    drop(client);
    let released = tokio::time::timeout(GONE_WITHIN, jobs.comes_to_hold(0)).await;
    assert!(released.is_err() && jobs.held() == 1, "the exchange goes on");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n";
    answer.send(head).unwrap();
    answer.send("{\"cost\": 20}").unwrap();
    drop(answer);
    until("the first to be settled", || async { left().await == 980 }).await;
    jobs.comes_to_hold(0).await;

    let mut client = jobs.send(GET).await;
    let answer = told.asked().await;
    answer.send(head).unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    drop(client);
    let released = tokio::time::timeout(GONE_WITHIN, jobs.comes_to_hold(0)).await;
    assert!(released.is_err() && jobs.held() == 1, "the exchange goes on");
    answer.send("{\"cost\": 30}").unwrap();
    drop(answer);
    until("the second to be settled", || async { left().await == 950 }).await;
    jobs.comes_to_hold(0).await;

    let mut client = jobs.send(GET).await;
    let answer = told.asked().await;
    answer.send(head).unwrap();
    answer.send("{\"cost\": 50}").unwrap();
    read_until(&mut client, "50}").await;
    until("the third to be settled", || async { left().await == 900 }).await;
    jobs.comes_to_hold(0).await;
}

#[tokio::test]
async fn a_rule_in_shadow_mode_takes_no_permit_and_denies_nobody() {
    let mut told = Told::start().await;
    let mut watching = under("watch", "all");
    watching.shadow = true;
    let jobs = Jobs::under(to(told.upstream()), [watching]).await;
    let mut clients = Vec::new();
    for _ in 0..7 {
        clients.push((jobs.send(GET).await, told.asked().await));
        assert_eq!(jobs.held(), 0);
    }
    drop(clients);
    let plain = Backend::friendly().await;
    let jobs = Jobs::on(to(plain.upstream())).await;
    for _ in 0..10 {
        assert_eq!(jobs.gateway.get("/", &[]).await.body, "hello");
    }
    jobs.comes_to_hold(0).await;
}
