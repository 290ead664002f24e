//! An axum application whose limits live in a real Redis: one instance end to end, and three that share.
//!
//! Needs a `redis-server`. Where there is none, the tests fail and say so; `./test` installs one.

use std::net::SocketAddr;
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use spile::key::{ClientIp, HeaderKey, KeyResolver};
use spile::{Admission, FailurePolicy, Limit, Plan, RateLimitLayer, RateLimiter, RedisStore, Rule};
use spile_testkit::redis::RedisServer;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A hundred for the day: nothing of note comes back while a test runs.
fn plans() -> [Plan; 1] {
    [Plan::new("daily", Limit::per_day(100)).unwrap()]
}

/// An instance of the application with connections of its own, listening on a port of its own.
async fn instance(redis: &RedisServer, policy: FailurePolicy) -> SocketAddr {
    // The deadline is long: these tests are about what is decided, on machines that may be busy.
    let store = RedisStore::builder(redis.url()).timeout(Duration::from_secs(5)).build().unwrap();
    let limiter = RateLimiter::builder()
        .store(store)
        .plans(plans())
        .on_failure(policy)
        .deadline(Duration::from_secs(5))
        .build();
    let key = || HeaderKey::api_key().or(ClientIp::direct());
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/work",
            post(async |admission: Extension<Admission>| admission.settle(20).await.map_or("?", |_| "done")),
        )
        .layer(RateLimitLayer::new(limiter, Rule::new(key(), "daily")).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>());
    tokio::spawn(async { serve.await });
    address
}

type Http = Client<HttpConnector, Full<&'static [u8]>>;

fn http() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn send(http: &Http, request: http::request::Builder) -> Response<String> {
    let response = http.request(request.body(Full::new(&[][..])).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_limit_in_redis_is_told_to_the_client_settled_and_refused_beyond() {
    let redis = RedisServer::start();
    let address = instance(&redis, FailurePolicy::Deny).await;
    let http = http();
    let hello = || Request::get(format!("http://{address}/")).header("x-api-key", "ann");

    let response = send(&http, hello()).await;
    assert_eq!((response.status(), response.body().as_str()), (StatusCode::OK, "hello"));
    assert_eq!(response.headers()["x-ratelimit-remaining"], "99");
    assert_eq!(response.headers()["ratelimit-policy"], "\"daily\";q=100;w=86400");
    assert!(!response.headers().contains_key("x-ratelimit-degraded"));

    let work = Request::post(format!("http://{address}/work")).header("x-api-key", "ann");
    assert_eq!(send(&http, work).await.body(), "done");
    assert_eq!(send(&http, hello()).await.headers()["x-ratelimit-remaining"], "78", "the work cost twenty");

    for _ in 0..78 {
        assert_eq!(send(&http, hello()).await.status(), StatusCode::OK);
    }
    let refused = send(&http, hello()).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.body().contains(r#""violated-policies":["daily"]"#), "{}", refused.body());

    let by_address = send(&http, Request::get(format!("http://{address}/"))).await;
    assert_eq!(by_address.headers()["x-ratelimit-remaining"], "99", "without a key the address counts");
}

#[tokio::test]
async fn three_instances_let_in_what_the_limit_says_and_not_one_more() {
    let redis = RedisServer::start();
    let mut instances = Vec::new();
    for _ in 0..3 {
        instances.push(instance(&redis, FailurePolicy::Deny).await);
    }
    let http = http();
    let mut callers = JoinSet::new();
    for caller in 0..30 {
        let (http, address) = (http.clone(), instances[caller % instances.len()]);
        callers.spawn(async move {
            let mut admitted = 0;
            for _ in 0..10 {
                let request = Request::get(format!("http://{address}/")).header("x-api-key", "shared");
                match send(&http, request).await.status() {
                    StatusCode::OK => admitted += 1,
                    status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
                }
            }
            admitted
        });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<u32>(), 100);
}

#[tokio::test]
async fn while_redis_is_away_the_policy_answers_and_afterwards_redis_does_again() {
    let mut redis = RedisServer::start();
    let open = instance(&redis, FailurePolicy::Allow).await;
    let closed = instance(&redis, FailurePolicy::Deny).await;
    let http = http();
    let ask = async |address: SocketAddr| {
        send(&http, Request::get(format!("http://{address}/")).header("x-api-key", "ann")).await
    };
    assert_eq!(ask(closed).await.status(), StatusCode::OK);

    redis.kill();
    let passed = ask(open).await;
    assert_eq!(passed.status(), StatusCode::OK);
    assert_eq!(passed.headers()["x-ratelimit-degraded"], "true");
    let refused = ask(closed).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(refused.body().contains("Service temporarily unavailable (rate limiter backend error)"));

    redis.launch_again();
    let recovered = async {
        while ask(closed).await.status() != StatusCode::OK {
            // Another process is waited for; no clock of ours moves it.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), recovered).await.expect("recovery needs no restart");
}
