//! Attacks by clients: header injection, slow requests, floods, oversized requests, ambiguous paths, and use as an open
//! proxy.

use std::time::Duration;

use http::Method;
use spile_core::{Cost, FakeClock};
use spile_gateway::{Bounds, Gateway, Route, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use spile_policy::KeyList;

use crate::support::{
    Backend, RawBackend, by_tenant_or_address, exchange, in_time, limiter_on, open, plan, policy, running,
    to, under,
};

fn soon() -> Duration {
    Duration::from_millis(200)
}

#[tokio::test]
async fn a_value_cannot_bring_a_header_of_its_own() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    for value in ["a\rX-Plan: gold", "a\0b", "a\x0bX-Plan: gold"] {
        let request = format!("GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\nX: {value}\r\n\r\n");
        let answer = exchange(gateway.address, request.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let path = "GET /a%0d%0aX-Plan:%20gold HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n";
    assert!(exchange(gateway.address, path.as_bytes()).await.starts_with("HTTP/1.1 400"));
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn a_header_that_never_ends_is_hung_up_on() {
    let backend = Backend::friendly().await;
    let mut bounds = Bounds::default();
    bounds.header_timeout = soon();
    let gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    for start in ["", "P", "PRI * HTTP/2.0\r\n", "GET", "GET / HTTP/1.1\r\nHost: g\r\nX: "] {
        let answer = exchange(gateway.address, start.as_bytes()).await;
        assert!(!answer.contains("200"), "{answer}");
    }
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_never_ends_is_hung_up_on() {
    let backend = Backend::friendly().await;
    let mut timeouts = Timeouts::default();
    timeouts.idle = soon();
    let gateway = running(open(to(backend.upstream()).timeouts(timeouts))).await;
    let request = "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1000\r\n\r\nsome";
    let answer = exchange(gateway.address, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("application/problem+json"));
}

#[tokio::test]
async fn oversized_headers_targets_and_bodies_are_refused() {
    let backend = Backend::friendly().await;
    let mut bounds = Bounds::default();
    bounds.header_bytes = 16 * 1024;
    let gateway = running(open(to(backend.upstream()).max_body(1_000)).bounds(bounds)).await;
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n{fields}\r\n").into_bytes()
    };
    let table = [
        (get("/", &format!("X: {}\r\n", "x".repeat(20_000))), "431"),
        (get("/", &"X: y\r\n".repeat(200)), "431"),
        (get(&format!("/{}", "x".repeat(9_000)), ""), "414"),
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1001\r\n\r\n".to_vec(), "413"),
    ];
    for (request, status) in table {
        let answer = exchange(gateway.address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {answer}");
    }
    assert!(backend.seen().is_empty());
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "3e8\r\n".to_owned() + &"x".repeat(1_000) + "\r\n1\r\nx\r\n0\r\n\r\n"
    );
    let answer = exchange(gateway.address, chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "a body that grows too large on the way: {answer}");
}

#[tokio::test]
async fn a_client_that_sends_too_much_in_one_go_gets_to_read_why_it_was_refused() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()).max_body(100_000))).await;
    let body = vec![b'x'; 10_000_000];
    let plain = format!("Content-Length: {}\r\n\r\n", body.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    let headers = format!("X: {}", "x".repeat(1_000_000));
    for round in 0..45 {
        let (framing, status) = [(&plain, "413"), (&chunked, "413"), (&headers, "431")][round % 3];
        let head = format!("POST / HTTP/1.1\r\nHost: g\r\n{framing}");
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let sent = in_time("all to be sent", client.write_all(&[head.as_bytes(), &body].concat())).await;
        assert!(sent.is_ok(), "round {round}: {sent:?}");
        let mut answer = String::new();
        let read = in_time("the refusal", client.read_to_string(&mut answer)).await;
        let told = answer.starts_with(&format!("HTTP/1.1 {status}"));
        assert!(read.is_ok() && told, "round {round}: {read:?} {answer}");
    }
}

#[tokio::test]
async fn no_spelling_of_a_path_dodges_its_rule() {
    let spellings = [
        "/login",
        "//login",
        "/./login",
        "/login/",
        "/login//",
        "/x/../login",
        "/%6cogin",
        "/%2e/login",
        "/x/%2e%2e/login",
        "/login;a=b",
        "/login%3Bx",
        "/login?x=/other",
        "/./x/..//%6Cogin/.",
        "/login%2f",
        "/%2flogin",
        "/x%2f..%2flogin",
        "/login%5c",
        "\\login",
        "/..;/login",
        "/login%00",
        "/%256cogin/%252e",
        "/%256cogin",
        "/;x/login",
        "/x/..;/login",
        "/%c0%aflogin",
    ];
    for spelling in spellings {
        let backend = Backend::friendly().await;
        let mut login = by_tenant_or_address("login");
        login.matcher.path = Some("/login".parse().unwrap());
        login.cost = Cost::new(10).unwrap();
        let gateway = running(
            Gateway::builder(limiter_on(&FakeClock::default()))
                .route(to(backend.upstream()))
                .policy(policy([plan("free", 10, 1)], [login, by_tenant_or_address("default")])),
        )
        .await;
        let request = format!("GET {spelling} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
        let answer = exchange(gateway.address, request.as_bytes()).await;
        let refused = answer.starts_with("HTTP/1.1 400");
        let caught = answer.contains("x-ratelimit-remaining: 0\r\n");
        assert!(refused || caught, "{spelling}: {answer}");
        if let Some(seen) = backend.seen().first() {
            assert!(
                caught && seen.target.starts_with("/login"),
                "{spelling}: what was matched is what was asked: {}",
                seen.target
            );
        }
    }
}

#[tokio::test]
async fn no_field_names_another_path_to_an_upstream() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    for name in ["x-original-url", "x-rewrite-url", "x_original_url", "X-Rewrite_Url"] {
        assert_eq!(gateway.get("/open", &[(name, "/admin")]).await.status, 200);
        assert_eq!(backend.last().header(name), None, "{name}");
    }
}

#[tokio::test]
async fn an_upstream_is_asked_for_a_path_even_where_the_client_named_none() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    for (target, asked) in [("http://g", "/"), ("http://g?x=1", "/?x=1"), ("http://g/?", "/?")] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
        let answer = exchange(gateway.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
        assert_eq!(backend.last().target, asked);
    }
}

#[tokio::test]
async fn a_rule_for_one_method_is_not_dodged_by_another_spelling_of_it() {
    let backend = Backend::friendly().await;
    let mut rule = by_tenant_or_address("both");
    rule.matcher.methods = vec![Method::POST, Method::GET];
    rule.cost = Cost::new(10).unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(to(backend.upstream()))
            .policy(policy([plan("free", 10, 1)], [rule])),
    )
    .await;
    let mut client = gateway.client().await;
    for method in ["post", "Post", "get", "heAD"] {
        assert_eq!(client.ask(method, "/", &[], "").await.status, 400, "{method}");
    }
    assert!(backend.seen().is_empty(), "some upstreams would run them");
    assert_eq!(client.ask("POST", "/", &[], "").await.status, 200);
    assert_eq!(client.ask("HEAD", "/", &[], "").await.status, 429, "GET covers HEAD");
    assert_eq!(client.ask("purge", "/", &[], "").await.status, 200, "a method of the upstream's own");
    assert_eq!(
        backend.last().method.as_str(),
        "purge",
        "methods have a case, and upstreams see the same one"
    );
}

#[tokio::test]
async fn a_path_has_one_bucket_however_it_is_spelt() {
    let backend = Backend::friendly().await;
    let mut rule = under("by-path", "free");
    rule.key = KeyList::parse(&["path"]).unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(to(backend.upstream()))
            .policy(policy([plan("free", 1, 1)], [rule])),
    )
    .await;
    let mut statuses = Vec::new();
    for spelling in ["/res/7", "//res/7", "/res/./7", "/%72es/7", "/res/x/../7", "/res/7;x=1"] {
        let request = format!("GET {spelling} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
        statuses.push(exchange(gateway.address, request.as_bytes()).await[9..12].to_owned());
    }
    assert_eq!(statuses, ["200", "429", "429", "429", "429", "429"]);
}

#[tokio::test]
async fn it_is_no_open_proxy() {
    let backend = Backend::friendly().await;
    let gateway =
        running(open(Route::new("/", [backend.upstream()]).unwrap().host("gateway.test").unwrap())).await;
    let table = [
        ("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443", "405"),
        ("GET http://example.com/ HTTP/1.1\r\nHost: example.com", "404"),
        ("GET http://example.com/ HTTP/1.1\r\nHost: gateway.test", "400"),
        ("GET http://gateway.test/ HTTP/1.1\r\nHost: example.com", "400"),
        ("GET http://gateway.test@example.com/ HTTP/1.1\r\nHost: gateway.test", "400"),
        ("GET / HTTP/1.1\r\nHost: example.com", "404"),
        ("GET / HTTP/1.1\r\nHost: gateway.test/x", "400"),
        ("GET * HTTP/1.1\r\nHost: gateway.test", "400"),
        ("OPTIONS * HTTP/1.1\r\nHost: example.com", "404"),
        ("TRACE / HTTP/1.1\r\nHost: gateway.test", "405"),
        ("GET http://gateway.test/ok HTTP/1.1\r\nHost: gateway.test", "200"),
    ];
    for (head, status) in table {
        let answer =
            exchange(gateway.address, format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {answer}");
    }
    assert_eq!(backend.seen().len(), 1);
}

/// Texts that are not valid hosts.
const NO_HOSTS: [&str; 20] = [
    "",
    "a:+80",
    "a[b",
    "..",
    ".",
    "a..b",
    ".a",
    "a:",
    "a:80:80",
    "a:65536",
    "a:8a",
    "u@a",
    "u:p@a",
    "a%2eb",
    "a,b",
    "a b",
    "[::1",
    "[::1]:x",
    "[1.2.3.4]",
    "::1",
];

#[tokio::test]
async fn a_host_is_read_in_one_way_only_over_either_version() {
    let backend = Backend::friendly().await;
    let own =
        Route::new("/", [backend.upstream()]).unwrap().host("gateway.test").unwrap().host("[::1]").unwrap();
    let gateway = running(open(own)).await;
    let ask = async |target: &str, host: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(gateway.address, request.as_bytes()).await.get(9..12).map(str::to_owned)
    };
    for host in NO_HOSTS {
        assert_eq!(ask("/", host).await.as_deref(), Some("400"), "{host}");
        assert_eq!(ask(&format!("http://{host}/"), host).await.as_deref(), Some("400"), "{host}");
        assert_eq!(over_http_2(gateway.address, host).await, None, "{host}");
    }
    assert!(backend.seen().is_empty(), "{:?}", backend.seen());
    for host in
        ["gateway.test", "GATEWAY.test.", "gateway.test.:80", "gateway.test:65535", "[::1]", "[0::0:1]:1"]
    {
        assert_eq!(ask("/", host).await.as_deref(), Some("200"), "{host}");
        assert_eq!(over_http_2(gateway.address, host).await, Some(200), "{host}");
    }
}

/// The status of a response over HTTP/2 to a request with this authority. `None` if it was refused: with 400, by a
/// reset, or by the client's own library.
async fn over_http_2(address: std::net::SocketAddr, authority: &str) -> Option<u16> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let uri = http::Uri::builder().scheme("http").authority(authority).path_and_query("/").build().ok()?;
    let request = http::Request::get(uri).body(()).unwrap();
    let (answer, _) = client.ready().await.unwrap().send_request(request, true).ok()?;
    let status = in_time("an answer", answer).await.ok()?.status().as_u16();
    Some(status).filter(|&status| status != 400)
}

#[tokio::test]
async fn upstream_errors_leak_nothing() {
    let gone = TcpStream::connect("127.0.0.1:1").await.is_err();
    assert!(gone, "nothing listens on port 1");
    let closed = "http://127.0.0.1:1".parse().unwrap();
    let garbage = RawBackend::saying(b"secret-internal-banner 10.0.0.7\r\n\r\n").await;
    let cut = RawBackend::saying(b"HTTP/1.1 200 OK\r\nX-Internal: secr").await;
    let split =
        RawBackend::saying(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab").await;
    for upstream in [closed, garbage.upstream(), cut.upstream(), split.upstream()] {
        let gateway = running(open(to(upstream.clone()))).await;
        let answer = gateway.client().await.ask("POST", "/", &[], "x").await;
        assert_eq!(answer.status, 502, "{upstream:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let said = String::from_utf8_lossy(&answer.body).to_lowercase();
        for secret in ["secret", "127.0.0.1", "10.0.0.7", "hyper", "refused", "os error"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[tokio::test]
async fn a_silent_upstream_is_a_timeout() {
    let silent = RawBackend::start(|mut stream| async move {
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
    })
    .await;
    let mut timeouts = Timeouts::default();
    timeouts.first_byte = soon();
    let gateway = running(open(to(silent.upstream()).timeouts(timeouts))).await;
    let answer = in_time("a timeout", gateway.get("/", &[])).await;
    assert_eq!(answer.status, 504);
    assert_eq!(answer.json()["detail"], "the service did not respond in time");
}

#[tokio::test]
async fn a_request_has_so_much_time_in_all_however_busy_its_upstream_seems() {
    let dripping = RawBackend::start(|mut stream| async move {
        let mut header = [0; 1024];
        drop(stream.read(&mut header).await);
        if header.starts_with(b"GET /head") {
            return std::future::pending().await;
        }
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n").await);
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut timeouts = Timeouts::default();
    timeouts.total = Some(soon());
    let gateway = running(open(to(dripping.upstream()).timeouts(timeouts))).await;
    let head = in_time("a timeout", gateway.get("/head", &[])).await;
    assert_eq!(head.status, 504);
    let broken = exchange(gateway.address, b"GET /body HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert!(broken.starts_with("HTTP/1.1 200") && broken.len() < 50_000, "it breaks off: {}", broken.len());
}

#[tokio::test]
async fn connections_are_capped() {
    let backend = Backend::friendly().await;
    let mut bounds = Bounds::default();
    bounds.connections = 2;
    let gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    let mut first = gateway.client().await;
    let mut second = gateway.client().await;
    assert_eq!(first.get("/", &[]).await.status, 200);
    assert_eq!(second.get("/", &[]).await.status, 200);
    let mut third = TcpStream::connect(gateway.address).await.unwrap();
    third.write_all(b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await.unwrap();
    assert_eq!(first.get("/", &[]).await.status, 200);
    assert_eq!(backend.seen().len(), 3, "the third connection is not served while two are open");
    drop(first);
    let mut answer = String::new();
    in_time("room", third.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_never_reads_its_answer_is_hung_up_on_and_its_upstream_let_go() {
    let (endless, mut states) = RawBackend::endless().await;
    let mut bounds = Bounds::default();
    bounds.write_timeout = soon();
    let gateway = running(open(to(endless.upstream())).bounds(bounds)).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await.unwrap();
    for state in ["asked", "let go"] {
        assert_eq!(in_time(state, states.recv()).await, Some(state));
    }
}

#[tokio::test]
async fn a_slow_reader_that_keeps_reading_gets_all_of_its_answer() {
    const BYTES: usize = 8_000_000;
    let backend = Backend::start(|_| crate::support::text(vec![b'x'; BYTES])).await;
    let mut bounds = Bounds::default();
    bounds.write_timeout = Duration::from_secs(2);
    let gateway = running(open(to(backend.upstream())).bounds(bounds)).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await.unwrap();
    let (mut piece, mut read) = (vec![0; 400_000], 0);
    loop {
        let bytes = in_time("more of the answer", client.read(&mut piece)).await.unwrap();
        if bytes == 0 {
            break;
        }
        read += bytes;
        tokio::task::yield_now().await;
    }
    assert!(read > BYTES, "{read}");
}

#[tokio::test]
async fn a_request_that_goes_in_circles_is_ended() {
    let second = std::sync::Arc::new(parking_lot::Mutex::new(None::<std::net::SocketAddr>));
    let onwards = std::sync::Arc::clone(&second);
    let relay = RawBackend::start(move |mut inbound| {
        let address = onwards.lock().expect("the gateway runs");
        async move {
            let mut outbound = TcpStream::connect(address).await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await);
        }
    })
    .await;
    let gateway = running(open(to(relay.upstream()))).await;
    *second.lock() = Some(gateway.address);
    let answer = in_time("the circle to end", gateway.get("/", &[])).await;
    assert_eq!(answer.status, 508);
    assert_eq!(answer.json()["detail"], "the request goes in circles");
    let others = "1.1 nginx, 1.1 spile (x), 2 varnish, HTTP/1.1 spiles, spile";
    assert_eq!(goes_through(others).await, 200, "others may call themselves what they like");
    assert_eq!(goes_through(&["1.1 spile"; 8].join(", ")).await, 508);
}

async fn goes_through(via: &str) -> u16 {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    gateway.get("/", &[("via", via)]).await.status.as_u16()
}
