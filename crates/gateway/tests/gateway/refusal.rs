//! Refusals with pages that the operator has written.

use spile_core::FakeClock;
use spile_gateway::{Gateway, RefusalKind, RefusalPage, RefusalPages, Route};

use crate::support::{Backend, Running, exchange, limiter_on, plan, policy, running, text, under};

fn page(words: &str) -> RefusalPage {
    RefusalPage::new(words.to_owned()).unwrap()
}

/// A gateway with a page for every kind of refusal, and another page for denied requests to `/`.
async fn with_pages(backend: &Backend, limit: u64) -> Running {
    let route = |path: &str| Route::new(path, [backend.upstream()]).unwrap().host("gateway.test").unwrap();
    let slow =
        page("{\"wait\":{retry_after}}").status(420).unwrap().content_type("application/json").unwrap();
    let all = RefusalKind::ALL
        .into_iter()
        .fold(RefusalPages::default(), |pages, kind| pages.page(kind, page(kind.name())));
    let dead = "http://127.0.0.1:1".parse().unwrap();
    running(
        Gateway::builder(limiter_on(&FakeClock::default()))
            .policy(policy([plan("some", limit, 1)], [under("default", "some")]))
            .refusals(all)
            .route(route("/own"))
            .route(route("/small").max_body(1))
            .route(route("/locked").require_auth(true))
            .route(route("/gold").only_plans(["gold"]))
            .route(Route::new("/dead", [dead]).unwrap().host("gateway.test").unwrap())
            .route(route("/").refusals(RefusalPages::default().page(RefusalKind::Limited, slow))),
    )
    .await
}

#[tokio::test]
async fn a_refusal_has_the_page_of_its_kind_and_keeps_its_fields() {
    let backend = Backend::start(|_| {
        let mut answer = text("the upstream's own");
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        answer
    })
    .await;
    let gateway = with_pages(&backend, 100).await;
    let mut client = gateway.client().await;
    let own = client.get("/own", &[]).await;
    assert_eq!((own.status.as_u16(), &own.body[..]), (404, &b"the upstream's own"[..]));
    for (path, status, words) in
        [("/locked", 401, "unauthorized"), ("/gold", 403, "forbidden"), ("/dead", 502, "unavailable")]
    {
        let answer = client.get(path, &[]).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (status, words.as_bytes()), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(
            answer.headers.contains_key("x-ratelimit-limit") && answer.headers.contains_key("x-request-id")
        );
        assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401);
    }
    let grpc = client.get("/locked", &[("content-type", "application/grpc")]).await;
    assert_eq!((grpc.status.as_u16(), grpc.header("grpc-status"), grpc.body.len()), (200, Some("16"), 0));
    let large = client.ask("POST", "/small", &[], "two").await;
    assert_eq!((large.status.as_u16(), &large.body[..]), (413, &b"too_large"[..]));
    let lost = exchange(gateway.address, b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await;
    assert!(lost.starts_with("HTTP/1.1 404") && lost.ends_with("not_found"), "{lost}");
}

#[tokio::test]
async fn a_refusal_looks_as_the_route_says_else_as_all_do() {
    let backend = Backend::friendly().await;
    let gateway = with_pages(&backend, 1).await;
    let mut client = gateway.client().await;
    assert_eq!(client.get("/", &[]).await.status, 200);
    let limited = client.get("/", &[]).await;
    assert_eq!((limited.status.as_u16(), &limited.body[..]), (420, &b"{\"wait\":1}"[..]));
    assert_eq!(limited.header("content-type"), Some("application/json"));
    assert_eq!((limited.header("retry-after"), limited.header("x-ratelimit-limit")), (Some("1"), Some("1")));
    let limited = client.get("/own", &[]).await;
    assert_eq!(
        (limited.status.as_u16(), &limited.body[..]),
        (429, &b"limited"[..]),
        "the route says nothing"
    );
    let head = client.ask("HEAD", "/", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len(), head.header("content-length")), (420, 0, Some("10")));
}
