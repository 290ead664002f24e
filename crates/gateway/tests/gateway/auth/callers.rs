//! Callers: what upstreams are told about them, and that clients cannot forge it.

use spile_gateway::{Gateway, Route};

use crate::support::{
    Backend, Running, by_tenant_or_address, exchange, in_time, limiter_on, open, plan, policy_for, running,
    tenant, to,
};
use spile_core::FakeClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn guarded(backend: &Backend) -> Running {
    let plans = [plan("free", 10, 1), plan("pro", 100, 50)];
    running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(Route::new("/", [backend.upstream()]).unwrap())
            .route(Route::new("/private", [backend.upstream()]).unwrap().require_auth(true))
            .policy(policy_for(plans, [by_tenant_or_address("default")], [tenant("acme", "pro", "k-acme")])),
    )
    .await
}

#[tokio::test]
async fn an_api_key_stands_for_a_tenant_and_its_plan() {
    let backend = Backend::friendly().await;
    let gateway = guarded(&backend).await;
    for credential in [("x-api-key", "k-acme"), ("authorization", "Bearer k-acme")] {
        let answer = gateway.get("/private", &[credential]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("100"), "the tenant's own plan applies");
        let seen = backend.last();
        assert_eq!(seen.header("x-tenant-id"), Some("acme"));
        assert_eq!(seen.header("x-plan"), Some("pro"));
        assert_eq!(seen.header(credential.0), None, "the key is the gateway's affair");
    }
}

#[tokio::test]
async fn nobody_can_claim_to_be_a_tenant() {
    let backend = Backend::friendly().await;
    let gateway = guarded(&backend).await;
    let claims = [
        ("x-tenant-id", "acme"),
        ("x-plan", "pro"),
        ("x_tenant_id", "acme"),
        ("x_plan", "pro"),
        ("connection", "x-tenant-id"),
    ];
    assert_eq!(gateway.get("/open", &claims).await.status, 200);
    let seen = backend.last();
    for name in ["x-tenant-id", "x-plan", "x_tenant_id", "x_plan"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(
        gateway.get("/open", &[("x-api-key", "k-acme"), ("connection", "x-tenant-id, x-plan")]).await.status,
        200
    );
    assert_eq!(
        backend.last().header("x-tenant-id"),
        Some("acme"),
        "a client cannot have it taken away either"
    );
}

/// Names that PHP, CGI and WSGI take for the gateway's own fields.
const RESPELT: [&str; 12] = [
    "x.tenant.id",
    "X_Plan",
    "x~plan",
    "x!tenant-id",
    "X|Plan",
    "x.real.ip",
    "x+request^id",
    "x'forwarded*for",
    "x.forwarded",
    "content.length",
    "x.api.key",
    "x%original&url",
];

#[tokio::test]
async fn no_spelling_of_a_claim_reaches_an_upstream() {
    let backend = Backend::friendly().await;
    let gateway = guarded(&backend).await;
    let plain = ["proxy", "x-forwarded", "x-forwarded-port", "x-rewrite-url"];
    let names: Vec<_> = RESPELT.iter().chain(&plain).collect();
    let claims = names.iter().map(|name| format!("{name}: claimed\r\n")).collect::<Vec<_>>().concat();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: g\r\nConnection: close, x-hop\r\nX.Hop: 1\r\nX.Other: 1\r\n{claims}\
         Transfer-Encoding: chunked\r\nTrailer: x.sum, {}\r\n\r\n2\r\nok\r\n0\r\nx.sum: 7\r\n{claims}\r\n",
        RESPELT.join(", ")
    );
    let answer = exchange(gateway.address, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let mut request = http::Request::post("http://g/").header("x.other", "1").body(()).unwrap();
    let fields: http::HeaderMap =
        names.iter().map(|name| (name.parse().unwrap(), http::HeaderValue::from_static("claimed"))).collect();
    request.headers_mut().extend(fields.clone());
    let (answer, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    let mut trailers = fields;
    trailers.insert("x.sum", http::HeaderValue::from_static("7"));
    body.send_trailers(trailers).unwrap();
    assert_eq!(in_time("an answer", answer).await.unwrap().status(), 200);

    assert_eq!(backend.seen().len(), 2);
    for seen in backend.seen() {
        let trailers = seen.trailers.unwrap_or_default();
        let claimed = |fields: &http::HeaderMap| fields.values().any(|value| value == "claimed");
        assert!(!claimed(&seen.headers) && !claimed(&trailers), "{:?} {trailers:?}", seen.headers);
        assert!(seen.headers.contains_key("x.other") && !seen.headers.contains_key("x.hop"));
    }
    assert!(backend.seen()[0].trailers.as_ref().unwrap().contains_key("x.sum"));
}

#[tokio::test]
async fn a_key_that_is_not_the_gateways_to_read_goes_through() {
    let backend = Backend::friendly().await;
    let gateway = running(open(to(backend.upstream()))).await;
    assert_eq!(gateway.get("/", &[("x-api-key", "own"), ("x_api_key", "own")]).await.status, 200);
    let seen = backend.last();
    assert_eq!((seen.header("x-api-key"), seen.header("x_api_key")), (Some("own"), Some("own")));
}

#[tokio::test]
async fn a_private_route_needs_a_credential_and_a_known_one() {
    let backend = Backend::friendly().await;
    let gateway = guarded(&backend).await;
    for fields in [&[][..], &[("x-api-key", "k-other")], &[("authorization", "Bearer k-other")]] {
        let answer = gateway.get("/private", fields).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.header("www-authenticate").is_some());
        assert_eq!(answer.json()["status"], 401);
        assert!(answer.header("x-ratelimit-remaining").is_some(), "guessing is limited like everything else");
    }
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn guessing_keys_is_limited_by_address() {
    let backend = Backend::friendly().await;
    let gateway = guarded(&backend).await;
    let mut client = gateway.client().await;
    let mut guessed = Vec::new();
    for guess in 0..11 {
        guessed
            .push(client.get("/private", &[("x-api-key", &format!("guess-{guess}"))]).await.status.as_u16());
    }
    assert_eq!(guessed, [[401; 10].as_slice(), &[429]].concat());
}

#[tokio::test]
async fn a_tenant_whose_id_is_no_ascii_is_named_all_the_same() {
    let backend = Backend::friendly().await;
    let gateway = running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .route(Route::new("/", [backend.upstream()]).unwrap())
            .policy(policy_for([plan("free", 10, 1)], [], [tenant("größe", "free", "k-size")])),
    )
    .await;
    assert_eq!(gateway.get("/", &[("x-api-key", "k-size")]).await.status, 200);
    assert_eq!(backend.last().headers["x-tenant-id"].as_bytes(), "größe".as_bytes());
}

#[tokio::test]
async fn nobody_can_claim_to_be_a_tenant_behind_a_body_either() {
    let backend = Backend::friendly().await;
    let claims =
        ["x-tenant-id", "X_Plan", "x-forwarded-for", "x-request_id", "authorization", "x-api-key", "cookie"];
    let h2c = format!("h2c://{}", backend.address).parse().unwrap();
    for upstream in [backend.upstream(), h2c] {
        let gateway = running(open(to(upstream))).await;
        let trailers = claims.map(|name| format!("{name}: acme\r\n")).concat();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: g\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
             Trailer: x-sum, {}\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n{trailers}\r\n",
            claims.join(", ")
        );
        let answer = exchange(gateway.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let trailers = backend.last().trailers.expect("the trailer that is nobody's claim");
        assert_eq!((trailers.len(), trailers["x-sum"].to_str().unwrap()), (1, "7"), "{trailers:?}");
    }
}

#[tokio::test]
async fn a_refusal_leaves_the_connection_to_the_next_request_or_says_that_it_does_not() {
    let backend = Backend::friendly().await;
    let gateway = guarded(&backend).await;
    let refused = "POST / HTTP/1.1\r\nHost: g\r\nX-API-Key: nobody\r\n";
    for (framing, body) in
        [("Content-Length: 5", "hello"), ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")]
    {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(format!("{refused}{framing}\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        in_time("the refusal", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401");
        let next = format!("{body}GET /next HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
        stream.write_all(next.as_bytes()).await.unwrap();
        let mut rest = String::new();
        in_time("the next answer", stream.read_to_string(&mut rest)).await.unwrap();
        assert!(rest.contains("HTTP/1.1 200 OK") && !rest.starts_with("connection"), "{rest}");
        assert_eq!(backend.last().target, "/next");
    }
    for framing in ["Content-Length: 1000000", "Content-Length: 5\r\nExpect: 100-continue"] {
        let answer = exchange(gateway.address, format!("{refused}{framing}\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("connection: close"), "{answer}");
    }
}
