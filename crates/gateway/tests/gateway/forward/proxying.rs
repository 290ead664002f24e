//! What upstreams and clients see of each other through the gateway.

use http::{Response, StatusCode};
use http_body_util::Full;
use spile_core::FakeClock;
use spile_gateway::Gateway;
use spile_tower::client::Networks;

use crate::support::{Backend, RawBackend, exchange, limiter_on, open, running, text, to};

#[tokio::test]
async fn fields_of_one_connection_end_at_it() {
    let backend = Backend::start(|_| {
        let mut response = text("x");
        let headers = response.headers_mut();
        headers.insert("connection", "x-internal".parse().unwrap());
        headers.insert("x-internal", "1".parse().unwrap());
        headers.insert("keep-alive", "timeout=5".parse().unwrap());
        headers.insert("proxy-authenticate", "Basic".parse().unwrap());
        response
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let fields = [
        ("connection", "X-Secret, keep-alive"),
        ("x-secret", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "close"),
        ("te", "gzip, trailers"),
        ("x-kept", "1"),
    ];
    let answer = gateway.get("/", &fields).await;
    for name in ["x-internal", "keep-alive", "proxy-authenticate"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    let seen = backend.last();
    for name in ["x-secret", "keep-alive", "proxy-authorization", "proxy-connection"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("te"), Some("trailers"));
    assert_eq!(seen.header("x-kept"), Some("1"));
}

#[tokio::test]
async fn a_stranger_is_named_by_its_address_whatever_it_claims() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    let claims = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.test"),
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "203.0.113.7"),
        ("x-request-id", "chosen"),
        ("x-forwarded-port", "443"),
        ("x-forwarded-prefix", "/admin"),
        ("x_forwarded_ssl", "on"),
    ];
    let answer = gateway.get("/", &claims).await;
    let seen = backend.last();
    for name in ["x-forwarded-port", "x-forwarded-prefix", "x_forwarded_ssl"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-real-ip"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("gateway.test"));
    assert_eq!(seen.header("forwarded"), Some("for=127.0.0.1;host=\"gateway.test\";proto=http"));
    assert_eq!(seen.header("via"), Some("1.1 spile"));
    assert_eq!(seen.header("host"), Some("gateway.test"));
    assert_eq!(seen.header("x-request-id"), answer.header("x-request-id"));
    assert_eq!(answer.header("x-request-id").map(str::len), Some(32));
    assert_eq!(answer.header("via"), Some("1.1 spile"));
}

#[tokio::test]
async fn what_a_trusted_proxy_says_is_added_to() {
    let backend = Backend::friendly().await;
    let trusted = Networks::parse(["127.0.0.1"]).unwrap();
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .trusted_proxies(trusted)
            .route(to(backend.upstream())),
    )
    .await;
    let said = [
        ("x-forwarded-for", "198.51.100.9, 203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=203.0.113.7"),
        ("x-request-id", "from-the-edge"),
    ];
    let answer = gateway.get("/", &said).await;
    let seen = backend.last();
    assert_eq!(seen.header("x-forwarded-for"), Some("198.51.100.9, 203.0.113.7, 127.0.0.1"));
    assert_eq!(seen.header("x-real-ip"), Some("203.0.113.7"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(
        seen.header("forwarded"),
        Some("for=203.0.113.7, for=127.0.0.1;host=\"gateway.test\";proto=http")
    );
    assert_eq!(answer.header("x-request-id"), Some("from-the-edge"));
}

#[tokio::test]
async fn answers_without_a_body_stay_without() {
    let backend = Backend::start(|seen| {
        let status = match seen.target.as_str() {
            "/204" => StatusCode::NO_CONTENT,
            "/304" => StatusCode::NOT_MODIFIED,
            _ => StatusCode::OK,
        };
        let body = if status == StatusCode::OK { "hello" } else { "" };
        Response::builder().status(status).header("etag", "\"x\"").body(Full::from(body)).unwrap()
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = gateway.client().await;
    let head = client.ask("HEAD", "/", &[], "").await;
    assert_eq!((head.status.as_u16(), head.header("content-length")), (200, Some("5")));
    assert!(head.body.is_empty());
    for (path, status) in [("/204", 204), ("/304", 304)] {
        let answer = client.get(path, &[]).await;
        assert_eq!((answer.status.as_u16(), answer.header("transfer-encoding")), (status, None));
        assert!(answer.body.is_empty());
    }
    assert_eq!(client.get("/", &[]).await.body, "hello", "the connection goes on");
}

#[tokio::test]
async fn a_client_of_http_1_0_is_served() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    let answer = exchange(gateway.address, b"GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("hello"), "{answer}");
    assert_eq!(backend.last().header("host"), Some(backend.address.to_string().as_str()));
}

#[tokio::test]
async fn connections_to_upstreams_are_kept() {
    let dialled = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&dialled);
    let backend = Backend::friendly().await;
    let inner = backend.address;
    let counting = crate::support::RawBackend::start(move |mut stream| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            let mut onward = tokio::net::TcpStream::connect(inner).await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut stream, &mut onward).await);
        }
    })
    .await;
    let gateway = running(open(to(counting.upstream()))).await;
    let mut client = gateway.client().await;
    for _ in 0..20 {
        assert_eq!(client.ask("POST", "/", &[], "some body").await.status, 200);
    }
    assert_eq!(dialled.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_upstream_of_http_1_0_does_not_make_the_client_one() {
    let old = RawBackend::saying(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let gateway = running(open(to(old.upstream()))).await;
    let request = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n";
    let answer = exchange(gateway.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("via: 1.0 spile"), "{answer}");
    let mut client = gateway.client().await;
    for _ in 0..2 {
        assert_eq!(client.get("/", &[]).await.body, "ok", "the connection is kept");
    }
}
