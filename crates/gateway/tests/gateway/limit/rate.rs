//! Rate limits: decided before anything is forwarded, and reported to the client in every response.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use spile_core::{Cost, FailurePolicy, FakeClock};
use spile_gateway::{CostSource, Gateway, Route, Timeouts};
use spile_limiter::{Ask, RateLimiter};
use spile_memory::MemoryStore;
use spile_policy::{KeyList, Policy, Rule, RulePlans};
use spile_testkit::store::{CallFault, FaultyStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use crate::support::{
    Backend, RawBackend, Running, by_tenant_or_address, exchange, in_time, limiter_on, plan, policy,
    policy_for, running, tenant, text, to, under, until,
};

type MemoryLimiter = RateLimiter<MemoryStore<Arc<FakeClock>>>;

/// A rule with this cost.
fn costing(tokens: u64, mut rule: Rule) -> Rule {
    rule.cost = Cost::new(tokens).unwrap();
    rule
}

/// A rule that only watches.
fn watching(mut rule: Rule) -> Rule {
    rule.shadow = true;
    rule
}

#[tokio::test]
async fn a_free_caller_gets_ten_of_fifteen_and_five_more_after_five_seconds() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .route(Route::new("/", [backend.upstream()]).unwrap())
            .policy(policy([plan("free", 10, 1)], [by_tenant_or_address("default")])),
    )
    .await;
    let mut client = gateway.client().await;
    for passed in 0..10 {
        let answer = client.get("/scores", &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("10"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some((9 - passed).to_string().as_str()));
    }
    for _ in 0..5 {
        let answer = client.get("/scores", &[]).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"], "Rate limit exceeded");
    }
    assert_eq!(backend.seen().len(), 10, "what is denied never reaches the upstream");
    clock.advance(Duration::from_secs(5));
    for _ in 0..5 {
        assert_eq!(client.get("/scores", &[]).await.status, 200);
    }
    assert_eq!(client.get("/scores", &[]).await.status, 429);
}

#[tokio::test]
async fn what_costs_more_than_the_plan_ever_holds_is_forbidden_and_not_told_to_wait() {
    let backend = Backend::friendly().await;
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(to(backend.upstream()))
            .policy(policy([plan("free", 10, 1)], [costing(11, by_tenant_or_address("default"))])),
    )
    .await;
    let answer = gateway.client().await.get("/scores", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (403, None));
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn reads_and_writes_are_limited_apart_and_writes_cost_more() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let mut writes = costing(5, under("writes", "writes"));
    writes.matcher.path = Some("/scores/*".parse().unwrap());
    writes.matcher.methods = vec![Method::POST, Method::PUT, Method::DELETE];
    let plans = [plan("free", 10, 1), plan("writes", 10, 1)];
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .route(to(backend.upstream()))
            .policy(policy(plans, [writes, by_tenant_or_address("default")])),
    )
    .await;
    let mut client = gateway.client().await;
    for status in [200, 200, 429] {
        assert_eq!(client.ask("POST", "/scores/7", &[], "x").await.status, status);
    }
    let answer = client.get("/scores/7", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-ratelimit-remaining")), (200, Some("9")));
}

#[tokio::test]
async fn a_client_has_a_bucket_for_each_route_and_one_for_all() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let route = |path| Route::new(path, [backend.upstream()]).unwrap();
    let policy = Policy::builder()
        .plans([plan("free", 5, 1), plan("route", 2, 1)])
        .rules([by_tenant_or_address("default")])
        .route_limits("/a", [under("a", "route")])
        .route_limits("/b", [under("b", "route")])
        .build()
        .unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .route(route("/a"))
            .route(route("/b"))
            .policy(policy),
    )
    .await;
    let mut client = gateway.client().await;
    let mut statuses = Vec::new();
    for path in ["/a", "/a", "/a", "/b", "/b", "/b"] {
        statuses.push(client.get(path, &[]).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200, 429]);
    let answer = client.get("/a", &[]).await;
    assert_eq!(answer.json()["violated-policies"], serde_json::json!(["route"]));
    assert!(
        answer.header("ratelimit").unwrap().contains("\"free\";r=1"),
        "a denial charges nothing: {answer:?}"
    );
}

#[tokio::test]
async fn a_failing_store_follows_the_rules_policy() {
    let backend = Backend::friendly().await;
    let limiter = || RateLimiter::builder().store(FaultyStore::down()).build();
    for (on_failure, status, degraded) in [
        (FailurePolicy::Deny, 503, true),
        (FailurePolicy::Allow, 200, true),
        (FailurePolicy::Local, 200, true),
    ] {
        let mut rule = by_tenant_or_address("default");
        rule.on_failure = Some(on_failure);
        let policy = policy([plan("free", 10, 1)], [rule]);
        let gateway = running(Gateway::builder(limiter()).route(to(backend.upstream())).policy(policy)).await;
        let answer = gateway.get("/", &[]).await;
        assert_eq!(answer.status, status, "{on_failure}");
        assert_eq!(answer.header("x-ratelimit-degraded").is_some(), degraded, "{on_failure}");
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert_eq!(
                answer.json()["message"],
                "Service temporarily unavailable (rate limiter backend error)"
            );
        }
    }
}

#[tokio::test]
async fn a_rule_that_only_watches_never_refuses() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .route(to(backend.upstream()))
            .policy(policy([plan("free", 1, 1)], [watching(by_tenant_or_address("default"))])),
    )
    .await;
    let mut client = gateway.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/", &[]).await.status, 200);
    }
}

#[tokio::test]
async fn what_the_upstream_reports_is_charged_and_never_shown() {
    let backend = Backend::start(|seen| {
        let mut response = text("x");
        if let Some(cost) = seen.target.strip_prefix("/cost/") {
            response.headers_mut().insert("x-ratelimit-cost", cost.parse().unwrap());
        }
        response
    })
    .await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .route(to(backend.upstream()).cost_from_response(CostSource::default()))
            .policy(policy([plan("free", 100, 1)], [costing(10, by_tenant_or_address("default"))])),
    )
    .await;
    let mut client = gateway.client().await;
    for (path, remaining) in
        [("/cost/25", "75"), ("/cost/1", "74"), ("/other", "64"), ("/cost/-5", "54"), ("/cost/900", "0")]
    {
        let answer = client.get(path, &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining), "{path}");
        assert_eq!(answer.header("x-ratelimit-cost"), None);
        assert_eq!(answer.header("retry-after"), None);
    }
    assert_eq!(client.get("/other", &[]).await.status, 429);
}

#[tokio::test]
async fn a_bucket_that_two_rules_charge_is_settled_once() {
    let backend = Backend::start(|seen| {
        let mut response = text("x");
        response.headers_mut().insert("x-ratelimit-cost", seen.headers["x-cost"].clone());
        response
    })
    .await;
    let mut once = under("once", "free");
    once.also = vec!["twice".into()];
    let mut twice = costing(5, under("twice", "free"));
    twice.matcher.path = Some("/elsewhere".parse().unwrap());
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(to(backend.upstream()).cost_from_response(CostSource::default()))
            .policy(policy([plan("free", 100, 1)], [once, twice])),
    )
    .await;
    let mut client = gateway.client().await;
    for (cost, left) in
        [("20", "80"), ("0", "80"), ("5", "75"), ("many", "70"), ("99999999999999999999", "0")]
    {
        let answer = client.get("/", &[("x-cost", cost)]).await;
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left), "{cost}");
    }
}

/// An upstream that reports when it gets a request, and responds with a cost of 50 when told to.
async fn withholding() -> (Backend, mpsc::UnboundedReceiver<()>, watch::Sender<bool>) {
    let (ask, asked) = mpsc::unbounded_channel();
    let (answer, answers) = watch::channel(false);
    let backend = Backend::start_async(move |_| {
        let (ask, mut answers) = (ask.clone(), answers.clone());
        async move {
            ask.send(()).unwrap();
            answers.wait_for(|answer| *answer).await.unwrap();
            let mut response = text("x");
            response.headers_mut().insert("x-ratelimit-cost", "50".parse().unwrap());
            response
        }
    })
    .await;
    (backend, asked, answer)
}

#[tokio::test]
async fn a_client_that_hangs_up_pays_what_its_answer_cost() {
    let (backend, mut asked, answer) = withholding().await;
    let (gateway, limiter) = reporting(backend.upstream()).await;
    let address = gateway.address;
    let client =
        tokio::spawn(async move { crate::support::Client::connect(address).await.get("/", &[]).await });
    asked.recv().await.expect("the upstream to be asked");
    client.abort();
    answer.send_replace(true);
    paid(&limiter, "what the answer cost to be charged").await;
}

/// A gateway that charges the costs that its upstream reports, and the limiter behind it.
async fn reporting(upstream: spile_gateway::Upstream) -> (Running, MemoryLimiter) {
    let limiter = limiter_on(&FakeClock::default());
    let mut timeouts = Timeouts::default();
    timeouts.idle = Duration::from_millis(500);
    let gateway = running(
        Gateway::builder(limiter.clone())
            .route(to(upstream).cost_from_response(CostSource::default()).timeouts(timeouts))
            .policy(policy([plan("free", 100, 1)], [by_tenant_or_address("default")])),
    )
    .await;
    (gateway, limiter)
}

async fn paid(limiter: &MemoryLimiter, what: &str) {
    let left = async || {
        let policy = policy([plan("free", 100, 1)], []);
        let owed = policy.owed_by_plans("ip:127.0.0.1", ["free"], 0).unwrap();
        limiter.decide(Ask::from(&owed).peeking()).await.into_decision().unwrap().remaining()
    };
    until(what, || async { left().await == 50 }).await;
}

#[tokio::test]
async fn a_client_that_sends_half_a_body_pays_what_the_upstream_says() {
    let (ask, mut asked) = mpsc::unbounded_channel();
    let backend = RawBackend::start(move |mut stream| {
        let ask = ask.clone();
        async move {
            let mut header = [0; 1024];
            drop(stream.read(&mut header).await);
            ask.send(()).unwrap();
            // It handles the bytes it has, and responds when no more come.
            while stream.read(&mut header).await.is_ok_and(|read| read > 0) {}
            drop(
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nx-ratelimit-cost: 50\r\ncontent-length: 0\r\n\r\n")
                    .await,
            );
        }
    })
    .await;
    for framing in ["Content-Length: 100\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n64\r\nsome"] {
        for hangs_up in [true, false] {
            let (gateway, limiter) = reporting(backend.upstream()).await;
            let mut client = TcpStream::connect(gateway.address).await.unwrap();
            client.write_all(format!("POST / HTTP/1.1\r\nHost: g\r\n{framing}").as_bytes()).await.unwrap();
            asked.recv().await.expect("the upstream to be asked");
            let _stalls = Some(client).filter(|_| !hangs_up);
            paid(&limiter, "what half a request cost to be charged").await;
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_half_a_body_pays_what_an_upstream_over_http_2_says_too() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("h2c://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (ask, mut asked) = mpsc::unbounded_channel();
    let (answer, answers) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut reply))) = connection.accept().await {
            let (ask, mut answers) = (ask.clone(), answers.clone());
            tokio::spawn(async move {
                let _some = request.into_body().data().await;
                ask.send(()).unwrap();
                drop(answers.wait_for(|answer| *answer).await);
                let cost = http::Response::builder().header("x-ratelimit-cost", "50").body(()).unwrap();
                drop(reply.send_response(cost, true));
            });
        }
    });
    let (gateway, limiter) = reporting(upstream).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\nsome").await.unwrap();
    asked.recv().await.expect("the upstream to be asked");
    drop(client);
    answer.send_replace(true);
    paid(&limiter, "what half a request cost to be charged").await;
}

#[tokio::test]
async fn a_stream_that_is_reset_pays_what_its_answer_cost() {
    let (backend, mut asked, answer) = withholding().await;
    let (gateway, limiter) = reporting(backend.upstream()).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = http::Request::get("http://g/").body(()).unwrap();
    let (_answer, mut stream) = client.ready().await.unwrap().send_request(request, true).unwrap();
    asked.recv().await.expect("the upstream to be asked");
    stream.send_reset(h2::Reason::CANCEL);
    answer.send_replace(true);
    paid(&limiter, "what the answer cost to be charged").await;
}

#[tokio::test]
async fn a_gateway_that_stops_waits_for_what_an_answer_cost() {
    let (backend, mut asked, answer) = withholding().await;
    let (mut gateway, limiter) = reporting(backend.upstream()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
    asked.recv().await.expect("the upstream to be asked");
    drop(client);
    let mut stopped = gateway.stop();
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stopped).await;
    assert!(early.is_err(), "an answer is still to come");
    answer.send_replace(true);
    in_time("the gateway to stop", stopped).await.unwrap();
    paid(&limiter, "what the answer cost to be charged").await;
}

#[tokio::test]
async fn an_answer_is_settled_in_one_call_of_the_store_and_says_what_is_left() {
    let backend = Backend::start(|seen| {
        let mut response = text("x");
        response.headers_mut().insert("x-ratelimit-cost", seen.headers["x-cost"].clone());
        response
    })
    .await;
    let clock = FakeClock::default();
    let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    let store = Arc::new(FaultyStore::new(inner, |_| CallFault::None));
    let limiter = RateLimiter::builder().store(store.clone()).clock(Arc::new(clock)).build();
    let mut also = costing(10, under("also", "small"));
    also.matcher.path = Some("/elsewhere".parse().unwrap());
    let mut rule = costing(10, under("default", "free"));
    rule.also = vec!["also".into()];
    let gateway = running(
        Gateway::builder(limiter)
            .route(to(backend.upstream()).cost_from_response(CostSource::default()))
            .policy(policy([plan("free", 100, 1), plan("small", 40, 1)], [rule, also])),
    )
    .await;
    let mut client = gateway.client().await;
    for (cost, calls, left) in
        [("12", 2, "28"), ("2", 2, "26"), ("10", 1, "16"), ("0", 2, "16"), ("900", 2, "0")]
    {
        let before = store.calls();
        let answer = client.get("/", &[("x-cost", cost)]).await;
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left), "{cost}");
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (200, None), "{cost}");
        assert_eq!(store.calls() - before, calls, "{cost}");
    }
}

#[tokio::test]
async fn a_rule_that_only_watches_lets_pass_whatever_is_wrong_with_it() {
    let backend = Backend::friendly().await;
    let tenants_only = Rule::new("a", RulePlans::Tenant { anonymous: None });
    let mut keyless = under("b", "free");
    keyless.key = KeyList::parse(&["header:x-who"]).unwrap();
    for rule in [tenants_only, keyless, costing(11, under("c", "free")), Rule::new("d", RulePlans::Banned)] {
        for (rule, passes) in [(rule.clone(), false), (watching(rule), true)] {
            let policy = policy([plan("free", 10, 1)], [rule.clone()]);
            let builder = Gateway::builder(limiter_on(&FakeClock::default())).route(to(backend.upstream()));
            let status = running(builder.policy(policy)).await.get("/", &[]).await.status;
            assert_eq!(status == 200, passes, "{rule:?} {status}");
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_paid_for_by_address_even_where_a_rule_is_for_tenants_alone() {
    let backend = Backend::friendly().await;
    let mut by_header = under("b", "free");
    by_header.key = KeyList::parse(&["tenant"]).unwrap();
    for rule in [Rule::new("a", RulePlans::Tenant { anonymous: None }), by_header] {
        let acme = tenant("acme", "free", "k-acme");
        let gateway = running(
            Gateway::builder(limiter_on(&FakeClock::default()))
                .route(to(backend.upstream()))
                .policy(policy_for([plan("free", 3, 1)], [rule], [acme])),
        )
        .await;
        let mut guessed = Vec::new();
        for guess in 0..5 {
            guessed.push(gateway.get("/", &[("x-api-key", &guess.to_string())]).await.status.as_u16());
        }
        assert_eq!(guessed, [401, 401, 401, 429, 429]);
        assert_eq!(gateway.get("/", &[]).await.status, 401, "without a credential nothing is guessed");
        assert_eq!(gateway.get("/", &[("x-api-key", "k-acme")]).await.status, 200);
    }
}

#[tokio::test]
async fn limits_that_shrink_let_nothing_pass_that_the_whole_one_refuses() {
    let policy = policy([plan("free", 10, 1)], [costing(11, by_tenant_or_address("default"))]);
    let headers = http::HeaderMap::new();
    for factor in [1.0, 0.5, 0.1] {
        let mut facts = spile_policy::Facts::new(&Method::GET, "/", &headers);
        (facts.address, facts.load_factor) = (Some([127, 0, 0, 1].into()), factor);
        let owed = policy.owed(&facts);
        assert!(owed.is_empty() && owed.refusal.is_some(), "{factor}");
    }
}

#[tokio::test]
async fn a_denied_request_is_answered_before_its_body_is_read() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .route(to(backend.upstream()))
            .policy(policy([plan("free", 1, 1)], [by_tenant_or_address("default")])),
    )
    .await;
    assert_eq!(gateway.get("/", &[]).await.status, 200);
    let request = b"POST / HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n";
    let answer = exchange(gateway.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
}
