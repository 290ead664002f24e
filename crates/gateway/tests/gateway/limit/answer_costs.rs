//! What an answer cost: read while the answer passes, and settled whatever the client and the upstream do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use parking_lot::Mutex;
use spile_core::{Amount, Cost, FakeClock, LimitStatus};
use spile_gateway::{Gateway, GatewayBuilder, Route, Timeouts, UnreadCost, Upstream};
use spile_limiter::{Ask, RateLimiter};
use spile_memory::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use crate::support::{
    Backend, Metrics, RawBackend, Running, by_tenant_or_address, in_time, limiter_on, metered, plan, policy,
    read_until, text, to, until,
};

/// What a client may spend. The clock stands still, so nothing comes back.
pub(super) const BUDGET: u64 = 10_000;
/// The cost of the one rule.
pub(super) const RULE_COST: Cost = Cost::ONE;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: g\r\nAccept-Encoding: gzip, br\r\n\r\n";
pub(super) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A gateway with one route whose answers say what they cost, and what its clients have left.
pub(super) struct Budget {
    pub(super) gateway: Running,
    pub(super) metrics: Metrics,
    limiter: RateLimiter<Store>,
}

type Store = MemoryStore<Arc<FakeClock>>;

impl Budget {
    pub(super) async fn on(route: Route, source: &str) -> Self {
        let mut timeouts = Timeouts::default();
        timeouts.idle = Duration::from_secs(2);
        Self::within(route.timeouts(timeouts), source, |builder| builder).await
    }

    /// A gateway with other settings.
    pub(super) async fn within(
        route: Route,
        source: &str,
        change: impl FnOnce(GatewayBuilder<Store>) -> GatewayBuilder<Store>,
    ) -> Self {
        let limiter = limiter_on(&FakeClock::default());
        let route = route.named("llm").cost_from_response(source.parse().unwrap());
        let mut rule = by_tenant_or_address("default");
        rule.cost = RULE_COST;
        let builder = change(Gateway::builder(limiter.clone()).route(route));
        let (gateway, metrics) = metered(builder.policy(policy([plan("free", BUDGET, 1)], [rule]))).await;
        Self { gateway, metrics, limiter }
    }

    pub(super) async fn with_estimate(upstream: Upstream, source: &str, estimate: &str) -> Self {
        Self::on(to(upstream).estimate(estimate.parse().unwrap()), source).await
    }

    async fn look(&self) -> LimitStatus {
        let policy = policy([plan("free", BUDGET, 1)], []);
        let owed = policy.owed_by_plans("ip:127.0.0.1", ["free"], 0).unwrap();
        let ruling = self.limiter.decide(Ask::from(&owed).peeking()).await;
        ruling.into_decision().unwrap().binding().clone()
    }

    /// The tokens that have been spent.
    pub(super) async fn spent(&self) -> u64 {
        let status = self.look().await;
        (Amount::from(BUDGET) - status.remaining() + status.owed()).rounded_up()
    }

    pub(super) async fn comes_to(&self, tokens: u64) {
        until(&format!("{tokens} tokens to be spent"), || async { self.spent().await == tokens }).await;
    }

    /// How many answers had this result.
    pub(super) fn answers(&self, result: &str) -> u64 {
        self.metrics.count(&format!("gateway_answer_costs_total llm {result}"))
    }

    pub(super) async fn counts(&self, result: &str) {
        until(&format!("an answer to be counted as {result}"), || async { self.answers(result) == 1 }).await;
    }

    /// Asks, and returns the connection.
    pub(super) async fn ask(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.gateway.address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        client
    }
}

/// An upstream whose one answer the test writes piece by piece. It hangs up when the test drops `pieces`.
pub(super) struct Scripted {
    pub(super) backend: RawBackend,
    /// The header of the request, once it has come.
    asked: mpsc::UnboundedReceiver<String>,
    pub(super) pieces: mpsc::UnboundedSender<String>,
}

impl Scripted {
    pub(super) async fn start() -> Self {
        let (ask, asked) = mpsc::unbounded_channel();
        let (pieces, script) = mpsc::unbounded_channel::<String>();
        let script = Arc::new(tokio::sync::Mutex::new(script));
        let backend = RawBackend::start(move |mut stream| {
            let (ask, script) = (ask.clone(), Arc::clone(&script));
            async move {
                let header = read_until(&mut stream, "\r\n\r\n").await;
                ask.send(header).unwrap();
                while let Some(piece) = script.lock().await.recv().await {
                    if stream.write_all(piece.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        Self { backend, asked, pieces }
    }

    pub(super) async fn is_asked(&mut self) -> String {
        in_time("the upstream to be asked", self.asked.recv()).await.unwrap()
    }

    pub(super) fn say(&self, piece: impl Into<String>) {
        self.pieces.send(piece.into()).unwrap();
    }

    pub(super) fn say_event(&self, data: &str) {
        self.say(chunk(&event(data)));
    }
}

pub(super) fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

pub(super) fn chunk(text: &str) -> String {
    format!("{:X}\r\n{text}\r\n", text.len())
}

/// The last event of a stream that cost this many tokens.
pub(super) fn usage(tokens: u64) -> String {
    format!("{{\"choices\":[],\"usage\":{{\"prompt_tokens\":1,\"total_tokens\":{tokens}}}}}")
}

pub(super) const DELTA: &str = r#"{"choices":[{"index":0,"delta":{"content":"Hello"}}],"usage":null}"#;

const OPENAI: &str = r#"{"id":"chatcmpl-123","object":"chat.completion","choices":[{"index":0,"message":
    {"role":"assistant","content":"Two \"quoted\" words."},"finish_reason":"stop"}],
    "usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0}}}"#;

const ANTHROPIC: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi!"}],
    "stop_reason":"end_turn","usage":{"input_tokens":2095,"output_tokens":503}}"#;

const ANTHROPIC_EVENTS: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\
    \"content\":[],\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hello\"}}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// An answer of this type.
pub(super) fn answer(content_type: &'static str, body: &'static str) -> http::Response<Full<Bytes>> {
    let mut response = text(body);
    response.headers_mut().insert("content-type", content_type.parse().unwrap());
    response
}

#[tokio::test]
async fn an_answer_is_settled_at_what_it_says_before_its_client_has_seen_its_end() {
    for (source, content_type, body, tokens) in [
        ("openai", "application/json", OPENAI, 29),
        ("json:/usage/completion_tokens", "application/json", OPENAI, 10),
        ("anthropic", "application/json", ANTHROPIC, 2598),
        ("anthropic", "text/event-stream", ANTHROPIC_EVENTS, 40),
        ("sse:/message/usage/input_tokens", "text/event-stream", ANTHROPIC_EVENTS, 25),
    ] {
        let backend = Backend::start(move |_| answer(content_type, body)).await;
        let budget = Budget::with_estimate(backend.upstream(), source, "500").await;
        let told = budget.gateway.get("/", &[]).await;
        assert_eq!((told.status.as_u16(), &told.body[..]), (200, body.as_bytes()), "{source}");
        assert_eq!(told.header("x-ratelimit-remaining"), Some("9500"), "the estimate, with the header");
        assert_eq!(budget.spent().await, tokens, "{source}");
        assert_eq!(budget.answers("settled"), 1);
    }
}

#[tokio::test]
async fn a_chunked_answer_is_settled_and_its_chunks_pass_as_they_come() {
    let mut upstream = Scripted::start().await;
    let budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
    let mut client = budget.ask().await;
    assert!(
        upstream.is_asked().await.contains("accept-encoding: identity"),
        "a compressed body cannot be read"
    );
    upstream.say("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    read_until(&mut client, "\r\n\r\n").await;
    for piece in OPENAI.as_bytes().chunks(40) {
        let piece = std::str::from_utf8(piece).unwrap();
        upstream.say(chunk(piece));
        assert_eq!(
            read_until(&mut client, &chunk(piece)).await,
            chunk(piece),
            "each piece before the next is sent"
        );
    }
    assert_eq!(budget.spent().await, 500);
    upstream.say("0\r\n\r\n");
    read_until(&mut client, "0\r\n\r\n").await;
    assert_eq!(budget.spent().await, 29);
}

#[tokio::test]
async fn events_reach_the_client_one_by_one_while_their_cost_is_read() {
    for source in ["openai", "sse:/usage/total_tokens"] {
        let mut upstream = Scripted::start().await;
        let budget = Budget::with_estimate(upstream.backend.upstream(), source, "500").await;
        let mut client = budget.ask().await;
        upstream.is_asked().await;
        upstream.say(EVENTS);
        for _ in 0..5 {
            upstream.say_event(DELTA);
            read_until(&mut client, &chunk(&event(DELTA))).await;
            assert_eq!(budget.spent().await, 500, "the estimate, as long as the answer comes");
        }
        upstream.say_event(&usage(1_234));
        upstream.say_event("[DONE]");
        upstream.say("0\r\n\r\n");
        read_until(&mut client, "[DONE]\n\n\r\n0\r\n\r\n").await;
        assert_eq!(budget.spent().await, 1_234, "more than the estimate is charged");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_before_in_or_after_its_answer_pays_what_the_answer_cost() {
    for phase in ["before", "within", "after"] {
        let mut upstream = Scripted::start().await;
        let budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
        let client = budget.ask().await;
        upstream.is_asked().await;
        let mut client = Some(client).filter(|_| phase != "before");
        upstream.say(EVENTS);
        upstream.say_event(DELTA);
        if let Some(client) = &mut client {
            read_until(client, &chunk(&event(DELTA))).await;
        }
        client = client.filter(|_| phase != "within");
        upstream.say_event(&usage(700));
        upstream.say("0\r\n\r\n");
        if let Some(client) = &mut client {
            read_until(client, "0\r\n\r\n").await;
        }
        drop(client);
        budget.comes_to(700).await;
        assert_eq!(budget.answers("settled"), 1, "{phase}");
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_pays_what_its_answer_cost() {
    let mut upstream = Scripted::start().await;
    let budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
    let stream = TcpStream::connect(budget.gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = http::Request::get("http://g/").body(()).unwrap();
    let (answer, mut stream) = client.ready().await.unwrap().send_request(request, true).unwrap();
    upstream.is_asked().await;
    upstream.say(EVENTS);
    upstream.say_event(DELTA);
    let mut body = in_time("the answer", answer).await.unwrap().into_body();
    assert_eq!(in_time("an event", body.data()).await.unwrap().unwrap(), event(DELTA));
    stream.send_reset(h2::Reason::CANCEL);
    drop(body);
    upstream.say_event(&usage(700));
    upstream.say("0\r\n\r\n");
    budget.comes_to(700).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_keeps_the_estimate_unless_it_has_already_cost_more() {
    for (told, spent, result) in [
        (DELTA.to_owned(), 500, "no_number"),
        (usage(30), 500, "broken_off"),
        (usage(700), 700, "broken_off"),
    ] {
        let mut upstream = Scripted::start().await;
        let budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
        let mut client = budget.ask().await;
        upstream.is_asked().await;
        upstream.say(EVENTS);
        upstream.say_event(&told);
        read_until(&mut client, &chunk(&event(&told))).await;
        drop(upstream.pieces);
        let mut rest = Vec::new();
        drop(in_time("the gateway to hang up", client.read_to_end(&mut rest)).await);
        budget.counts(result).await;
        assert_eq!(budget.spent().await, spent, "{told}");
    }
}

#[tokio::test]
async fn an_answer_that_stalls_is_settled_when_its_time_is_over() {
    let mut upstream = Scripted::start().await;
    let budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
    let mut client = budget.ask().await;
    upstream.is_asked().await;
    upstream.say(EVENTS);
    upstream.say_event(&usage(700));
    read_until(&mut client, &chunk(&event(&usage(700)))).await;
    budget.comes_to(700).await;
    assert_eq!(budget.answers("broken_off"), 1);
}

#[tokio::test]
async fn an_answer_without_a_number_leaves_what_was_charged() {
    let backend = Backend::start(|_| answer("application/json", r#"{"error":{"type":"overloaded"}}"#)).await;
    let budget = Budget::with_estimate(backend.upstream(), "openai", "500").await;
    budget.gateway.get("/", &[]).await;
    assert_eq!((budget.spent().await, budget.answers("no_number")), (500, 1));
    let mut client = budget.gateway.client().await;
    client.ask("HEAD", "/", &[], "").await;
    budget.comes_to(1_000).await;
}

#[tokio::test]
async fn an_upstream_that_compresses_all_the_same_is_passed_on_as_it_is_and_counted() {
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xffnot really \xfe but not read";
    let backend = Backend::start(|_| {
        let mut response = text(&gzip[..]);
        response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        response
    })
    .await;
    let budget = Budget::with_estimate(backend.upstream(), "openai", "500").await;
    let told = budget.gateway.get("/", &[("accept-encoding", "gzip")]).await;
    assert_eq!((told.header("content-encoding"), &told.body[..]), (Some("gzip"), &gzip[..]));
    assert_eq!(backend.last().header("accept-encoding"), Some("identity"));
    assert_eq!((budget.spent().await, budget.answers("encoded")), (500, 1));
}

#[tokio::test]
async fn a_cost_in_a_header_of_any_name_is_charged_and_the_body_may_be_compressed() {
    let backend = Backend::start(|_| {
        let mut response = text("x");
        response.headers_mut().insert("x-tokens-used", "70".parse().unwrap());
        response
    })
    .await;
    let budget = Budget::on(to(backend.upstream()), "header:x-tokens-used").await;
    let told = budget.gateway.get("/", &[("accept-encoding", "gzip")]).await;
    assert_eq!(
        (told.header("x-ratelimit-remaining"), told.header("x-tokens-used")),
        (Some("9930"), Some("70"))
    );
    assert_eq!(backend.last().header("accept-encoding"), Some("gzip"));
    assert_eq!(budget.answers("settled"), 1);
}

#[tokio::test]
async fn an_upstream_over_http_2_is_read_piece_by_piece_too() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream: Upstream = format!("h2c://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (pieces, script) = mpsc::unbounded_channel::<String>();
    let script = Arc::new(tokio::sync::Mutex::new(script));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut reply))) = connection.accept().await {
            let script = Arc::clone(&script);
            tokio::spawn(async move {
                let head =
                    http::Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
                let mut stream = reply.send_response(head, false).unwrap();
                let mut script = script.lock().await;
                while let Some(piece) = script.recv().await {
                    let is_last = piece.contains("[DONE]");
                    stream.send_data(piece.into(), is_last).unwrap();
                    if is_last {
                        return;
                    }
                }
            });
        }
    });
    let budget = Budget::with_estimate(upstream, "openai", "500").await;
    for hangs_up in [false, true] {
        let before = budget.spent().await;
        let mut client = budget.ask().await;
        pieces.send(event(DELTA)).unwrap();
        read_until(&mut client, &chunk(&event(DELTA))).await;
        assert_eq!(budget.spent().await, before + 500);
        let client = Some(client).filter(|_| !hangs_up);
        pieces.send(event(&usage(600))).unwrap();
        pieces.send(event("[DONE]")).unwrap();
        budget.comes_to(before + 600).await;
        drop(client);
    }
}

#[tokio::test]
async fn a_request_is_charged_by_its_estimate_and_by_its_rule_if_that_says_nothing() {
    let backend = Backend::start(|_| text("no number")).await;
    for (estimate, fields, body, charged) in [
        ("header:x-max-tokens", &[("x-max-tokens", "300")][..], "", 300),
        ("header:x-max-tokens", &[("x-max-tokens", "0")], "", 1),
        ("header:x-max-tokens", &[("x-max-tokens", "lots")], "", 1),
        ("header:x-max-tokens", &[], "", 1),
        ("body/4", &[], "fourteen bytes", 4),
        ("body/4", &[], "", 1),
        ("250", &[], "", 250),
    ] {
        let route = to(backend.upstream()).estimate(estimate.parse().unwrap());
        let budget = Budget::on(route.unread_cost(UnreadCost::Estimate), "openai").await;
        let told = budget.gateway.client().await.ask("POST", "/", fields, body).await;
        assert_eq!(told.status, 200);
        assert_eq!(budget.spent().await, charged, "{estimate} {fields:?}");
    }
    let budget = Budget::with_estimate(backend.upstream(), "openai", "header:x-max-tokens").await;
    let told = budget.gateway.get("/", &[("x-max-tokens", "10001")]).await;
    assert_eq!((told.status.as_u16(), budget.spent().await), (403, 0), "more than the plan ever holds");
}

#[tokio::test]
async fn a_gateway_that_stops_waits_for_the_cost_of_an_answer_whose_client_has_gone() {
    let mut upstream = Scripted::start().await;
    let mut budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
    let mut client = budget.ask().await;
    upstream.is_asked().await;
    upstream.say(EVENTS);
    upstream.say_event(DELTA);
    read_until(&mut client, &chunk(&event(DELTA))).await;
    drop(client);
    let mut stopped = budget.gateway.stop();
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stopped).await;
    assert!(early.is_err(), "the rest of the answer is still to come");
    upstream.say_event(&usage(700));
    upstream.say("0\r\n\r\n");
    in_time("the gateway to stop", stopped).await.unwrap();
    assert_eq!(budget.spent().await, 700);
}

#[test]
fn a_runtime_that_ends_while_answers_are_under_way_leaves_the_estimate() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gateway = runtime();
    let (budget, client, upstream) = gateway.block_on(async {
        let mut upstream = Scripted::start().await;
        let budget = Budget::with_estimate(upstream.backend.upstream(), "openai", "500").await;
        let mut client = budget.ask().await;
        upstream.is_asked().await;
        upstream.say(EVENTS);
        upstream.say_event(DELTA);
        read_until(&mut client, &chunk(&event(DELTA))).await;
        (budget, client, upstream)
    });
    drop(gateway);
    assert_eq!(runtime().block_on(budget.spent()), 500);
    drop((client, upstream));
}

/// An upstream that streams an answer which costs 900, and ends each when it is told to.
async fn streaming() -> (RawBackend, Arc<Mutex<u64>>, watch::Sender<bool>) {
    let begun: Arc<Mutex<u64>> = Arc::default();
    let (finish, finished) = watch::channel(false);
    let count = Arc::clone(&begun);
    let backend = RawBackend::start(move |mut stream| {
        let (count, mut finished) = (Arc::clone(&count), finished.clone());
        async move {
            loop {
                read_until(&mut stream, "\r\n\r\n").await;
                *count.lock() += 1;
                let first = format!("{EVENTS}{}", chunk(&event(DELTA)));
                stream.write_all(first.as_bytes()).await.unwrap();
                drop(finished.wait_for(|finished| *finished).await);
                let last = format!("{}0\r\n\r\n", chunk(&event(&usage(900))));
                if stream.write_all(last.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (backend, begun, finish)
}

/// Starts twenty streams at once, ends those that were let in, and returns how many that were.
async fn twenty_at_once(budget: &Budget, begun: &Mutex<u64>, finish: &watch::Sender<bool>) -> u64 {
    let before = *begun.lock();
    finish.send_replace(false);
    let clients = (0..20).map(|_| async {
        let mut client = budget.ask().await;
        let head = read_until(&mut client, "\r\n\r\n").await;
        (client, head.starts_with("HTTP/1.1 200"))
    });
    let clients = futures_util::future::join_all(clients).await;
    let admitted = clients.iter().filter(|(_, admitted)| *admitted).count() as u64;
    assert_eq!(*begun.lock() - before, admitted);
    finish.send_replace(true);
    for (mut client, _) in clients.into_iter().filter(|(_, admitted)| *admitted) {
        read_until(&mut client, "0\r\n\r\n").await;
    }
    admitted
}

#[tokio::test]
async fn twenty_streams_at_once_spend_no_more_than_the_budget_and_what_was_under_way() {
    let (backend, begun, finish) = streaming().await;
    let budget = Budget::on(to(backend.upstream()), "openai").await;
    let admitted = twenty_at_once(&budget, &begun, &finish).await;
    assert_eq!(admitted, 20, "each is charged one token at first");
    let spent = budget.spent().await;
    assert_eq!(spent, 20 * 900);
    assert!(spent <= BUDGET + admitted * 900, "the budget, and what was under way");
    assert_eq!(budget.look().await.owed(), 8_000);
    assert_eq!(twenty_at_once(&budget, &begun, &finish).await, 0, "debt lets none in");
}

#[tokio::test]
async fn twenty_streams_at_once_stay_within_the_budget_if_estimates_cover_them() {
    let (backend, begun, finish) = streaming().await;
    let budget = Budget::with_estimate(backend.upstream(), "openai", "1000").await;
    assert_eq!(twenty_at_once(&budget, &begun, &finish).await, 10, "ten estimates fit");
    assert_eq!(budget.spent().await, 9_000);
    assert_eq!(twenty_at_once(&budget, &begun, &finish).await, 1, "one more fits into what was given back");
    assert_eq!(budget.spent().await, 9_900);
    assert_eq!(twenty_at_once(&budget, &begun, &finish).await, 0);
    assert!(budget.spent().await <= BUDGET);
    assert_eq!(budget.answers("settled"), 11);
}
