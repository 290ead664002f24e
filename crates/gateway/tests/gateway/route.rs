//! Routes: which one serves a request, and what it changes.

use std::time::Duration;

use http::uri::PathAndQuery;
use spile_core::FakeClock;
use spile_gateway::{Balance, Gateway, HeaderChanges, HealthCheck, Route};
use tokio::net::TcpStream;

use crate::support::{
    Backend, RawBackend, Running, exchange, in_time, limiter_on, open, plan, policy, running, text, to,
    under, until,
};

#[tokio::test]
async fn the_most_specific_route_serves() {
    let names = ["any", "scores", "deep", "host", "below"];
    let mut backends = Vec::new();
    for name in names {
        backends.push(Backend::start(move |_| text(name)).await);
    }
    let route = |path, index: usize| Route::new(path, [backends[index].upstream()]).unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(route("/", 0))
            .route(route("/scores", 1))
            .route(route("/scores/deep", 2))
            .route(route("/scores", 3).host("api.example.com").unwrap())
            .route(route("/", 4).host("*.example.com").unwrap()),
    )
    .await;
    let table = [
        ("g", "/other", "any"),
        ("g", "/scores", "scores"),
        ("g", "/scores/7", "scores"),
        ("g", "/scoreboard", "any"),
        ("g", "/scores/deep/7", "deep"),
        ("api.example.com", "/scores/7", "host"),
        ("API.example.com:8000", "/scores", "host"),
        ("api.example.com", "/other", "below"),
    ];
    assert_served(&gateway, &table).await;
}

/// Checks for each host and path which backend responds.
async fn assert_served(gateway: &Running, table: &[(&str, &str, &str)]) {
    for (host, path, expected) in table {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = exchange(gateway.address, request.as_bytes()).await;
        assert!(answer.ends_with(expected), "{host}{path}: {answer}");
    }
}

#[tokio::test]
async fn the_host_that_matches_decides_and_not_another_one_of_the_route() {
    let names = ["wide", "narrow", "everywhere"];
    let mut backends = Vec::new();
    for name in names {
        backends.push(Backend::start(move |_| text(name)).await);
    }
    let route = |path, index: usize| Route::new(path, [backends[index].upstream()]).unwrap();
    let with_hosts =
        |route: Route, hosts: &[&str]| hosts.iter().fold(route, |route, host| route.host(host).unwrap());
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(with_hosts(route("/api/deep", 0), &["*.example.com", "a-very-long-name.other.org"]))
            .route(with_hosts(route("/api", 1), &["api.example.com", "*.eu.example.com"]))
            .route(route("/api/deep", 2)),
    )
    .await;
    let table = [
        ("api.example.com", "/api/deep", "narrow"),
        ("a.eu.example.com", "/api/deep", "narrow"),
        ("www.example.com", "/api/deep", "wide"),
        ("a-very-long-name.other.org", "/api/deep", "wide"),
        ("elsewhere.test", "/api/deep", "everywhere"),
    ];
    assert_served(&gateway, &table).await;
}

#[tokio::test]
async fn no_route_is_a_404() {
    let backend = Backend::friendly().await;
    let gateway = running(open(Route::new("/scores", [backend.upstream()]).unwrap())).await;
    let answer = gateway.get("/", &[]).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn prefixes_are_stripped_and_rewritten() {
    let backend = Backend::friendly().await;
    let route = |path| Route::new(path, [backend.upstream()]).unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(route("/plain"))
            .route(route("/strip").strip_prefix(true))
            .route(route("/old").rewrite_prefix("/v2/new").unwrap()),
    )
    .await;
    let table = [
        ("/plain/a?q=1", "/plain/a?q=1"),
        ("/strip/a//b?q=%2F", "/a/b?q=%2F"),
        ("/strip", "/"),
        ("/old/a", "/v2/new/a"),
    ];
    for (asked, seen) in table {
        assert_eq!(gateway.get(asked, &[]).await.status, 200);
        assert_eq!(backend.last().target, seen);
    }
}

#[tokio::test]
async fn headers_are_changed_in_both_directions() {
    let backend = Backend::start(|_| {
        let mut response = text("x");
        response.headers_mut().insert("server", "secret/1.0".parse().unwrap());
        response
    })
    .await;
    let request = HeaderChanges::default().remove("cookie").unwrap().set("x-env", "prod").unwrap();
    let response = HeaderChanges::default().remove("server").unwrap().add("x-frame-options", "DENY").unwrap();
    let gateway =
        running(open(to(backend.upstream()).request_headers(request).response_headers(response))).await;
    let answer = gateway.get("/", &[("cookie", "a=b"), ("x-env", "mine")]).await;
    assert_eq!(answer.header("server"), None);
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    let seen = backend.last();
    assert_eq!((seen.header("cookie"), seen.header("x-env")), (None, Some("prod")));
}

#[tokio::test]
async fn requests_go_round_the_upstreams() {
    let (a, b) = (Backend::friendly().await, Backend::friendly().await);
    let route = Route::new("/", [a.upstream(), b.upstream()]).unwrap().balance(Balance::RoundRobin);
    let gateway = running(open(route)).await;
    let mut client = gateway.client().await;
    for _ in 0..10 {
        assert_eq!(client.get("/", &[]).await.status, 200);
    }
    assert_eq!((a.seen().len(), b.seen().len()), (5, 5));
}

#[tokio::test]
async fn a_dead_upstream_costs_no_request_that_another_can_serve() {
    let alive = Backend::friendly().await;
    let dead = "http://127.0.0.1:1".parse().unwrap();
    let gateway = running(open(Route::new("/", [dead, alive.upstream()]).unwrap())).await;
    let mut client = gateway.client().await;
    for _ in 0..6 {
        assert_eq!(
            client.ask("POST", "/", &[], "body").await.status,
            200,
            "nothing was sent: any method may go elsewhere"
        );
    }
    assert_eq!(alive.last().body, "body");
}

#[tokio::test]
async fn what_may_have_been_done_is_not_done_twice() {
    let breaking = RawBackend::saying(b"").await;
    let alive = Backend::friendly().await;
    let route = Route::new("/", [breaking.upstream(), alive.upstream()]).unwrap();
    let gateway = running(open(route)).await;
    let mut client = gateway.client().await;
    assert_eq!(client.ask("POST", "/", &[], "pay").await.status, 502);
    assert!(alive.seen().is_empty(), "the first upstream may have taken the money");
    let statuses = [client.get("/", &[]).await.status, client.get("/", &[]).await.status];
    assert_eq!(statuses, [200, 200], "reading twice does no harm");
}

#[tokio::test]
async fn checks_leave_out_an_upstream_that_is_not_well_and_bring_it_back() {
    let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let state = std::sync::Arc::clone(&well);
    let shaky = Backend::start(move |seen| {
        let mut response = text("shaky");
        if seen.target == "/health" && !state.load(std::sync::atomic::Ordering::Relaxed) {
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    })
    .await;
    let steady = Backend::start(|_| text("steady")).await;
    let mut check = HealthCheck::new(PathAndQuery::from_static("/health"));
    check.interval = Duration::from_millis(10);
    let route = Route::new("/", [shaky.upstream(), steady.upstream()]).unwrap().health_check(check);
    let gateway = running(open(route)).await;
    let only_steady = || async {
        let mut client = gateway.client().await;
        let mut bodies = Vec::new();
        for _ in 0..4 {
            bodies.push(client.get("/", &[]).await.body);
        }
        bodies.iter().all(|body| body == "steady")
    };
    until("the upstream to be left out", only_steady).await;
    well.store(true, std::sync::atomic::Ordering::Relaxed);
    until("the upstream to be back", || async { !only_steady().await }).await;
}

#[tokio::test]
async fn options_for_the_whole_server_goes_to_the_route_of_the_root_as_it_is() {
    let (root, other) = (Backend::friendly().await, Backend::friendly().await);
    let api = || Route::new("/api", [other.upstream()]).unwrap();
    let h2c = format!("h2c://{}", root.address).parse().unwrap();
    for upstream in [root.upstream(), h2c] {
        let own = Route::new("/", [upstream]).unwrap().rewrite_prefix("/elsewhere").unwrap();
        let gateway = running(open(own).route(api())).await;
        let request = b"OPTIONS * HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n";
        let answer = exchange(gateway.address, request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let seen = root.last();
        assert!(
            seen.method == "OPTIONS" && seen.target.ends_with('*') && !seen.target.contains("elsewhere"),
            "{seen:?}"
        );
    }
    let gateway = running(open(to(root.upstream()))).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let whole = http::Uri::builder().scheme("http").authority("g").path_and_query("*").build().unwrap();
    let request = http::Request::options(whole).body(()).unwrap();
    let (answer, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
    assert_eq!(in_time("an answer", answer).await.unwrap().status(), 200);
    assert_eq!((root.last().method.as_str(), root.last().target.as_str()), ("OPTIONS", "*"));
    assert_eq!((root.seen().len(), other.seen().len()), (3, 0));
    let gateway = running(open(api())).await;
    let answer =
        exchange(gateway.address, b"OPTIONS * HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "no route has the root: {answer}");
}

/// All header fields about limits, except `Retry-After`.
fn told_of_limits(headers: &http::HeaderMap) -> Vec<&str> {
    let names = headers.keys().map(http::HeaderName::as_str);
    names.filter(|name| name.starts_with("x-ratelimit") || name.starts_with("ratelimit")).collect()
}

#[tokio::test]
async fn what_a_route_takes_out_of_answers_is_gone_whoever_wrote_it() {
    let backend = Backend::friendly().await;
    let mut changes = HeaderChanges::default();
    for name in
        ["x-ratelimit-limit", "RateLimit", "ratelimit-policy", "x-ratelimit-reset", "via", "x-request-id"]
    {
        changes = changes.remove(name).unwrap();
    }
    changes = changes.set("x-ratelimit-remaining", "enough").unwrap();
    changes = changes.set("cache-control", "public").unwrap().set("content-type", "text/html").unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .policy(policy([plan("one", 1, 1)], [under("default", "one")]))
            .route(to(backend.upstream()).response_headers(changes)),
    )
    .await;
    let passed = gateway.get("/", &[]).await;
    assert_eq!((passed.status.as_u16(), passed.header("content-type")), (200, Some("text/html")));
    assert_eq!(passed.header("cache-control"), Some("public"));
    let refused = gateway.get("/", &[]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("cache-control"), Some("no-store"), "no cache may keep a refusal");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    for answer in [passed, refused] {
        assert_eq!(told_of_limits(&answer.headers), ["x-ratelimit-remaining"]);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("enough"));
        assert_eq!((answer.header("via"), answer.header("x-request-id")), (None, None));
    }
}

#[tokio::test]
async fn a_route_may_keep_its_limits_to_itself_but_not_how_long_to_wait() {
    let backend = Backend::friendly().await;
    let route = |path: &str| Route::new(path, [backend.upstream()]).unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .policy(policy([plan("one", 1, 1)], [under("default", "one")]))
            .route(route("/hidden").rate_limit_headers(false))
            .route(route("/locked").rate_limit_headers(false).require_auth(true))
            .route(route("/"))
            .clock(FakeClock::default()),
    )
    .await;
    let first = gateway.get("/hidden", &[]).await;
    assert_eq!((first.status.as_u16(), told_of_limits(&first.headers).len()), (200, 0));
    for grpc in [&[][..], &[("content-type", "application/grpc")]] {
        let refused = gateway.get("/hidden", grpc).await;
        assert_eq!(refused.header("retry-after"), Some("1"), "{refused:?}");
        assert_eq!(told_of_limits(&refused.headers).len(), 0, "{refused:?}");
    }
    let locked = gateway.get("/locked", &[("x-api-key", "wrong")]).await;
    assert_eq!(told_of_limits(&locked.headers).len(), 0, "{locked:?}");
    let open = gateway.get("/", &[]).await;
    assert_eq!((open.status.as_u16(), told_of_limits(&open.headers).len()), (429, 5));
}
