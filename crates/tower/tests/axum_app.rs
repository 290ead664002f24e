//! The layer in an axum application: routes, bodies that stream, addresses of real connections.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use common::limiter;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use spile_tower::key::{ClientIp, KeyResolver, RouteKey};
use spile_tower::{Admission, RateLimitLayer, Rule};
use tower::ServiceExt;

mod common;

fn request(path: &str, body: Body) -> Request<Body> {
    let mut request = Request::post(path).body(body).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([203, 0, 113, 7], 80))));
    request
}

#[tokio::test(start_paused = true)]
async fn routes_are_limited_one_by_one_however_their_paths_are_filled() {
    let layer = RateLimitLayer::new(limiter(), Rule::new(ClientIp::direct().and(RouteKey), "small")).unwrap();
    let app = Router::new()
        .route("/scores/{id}", post(|| async { "scored" }))
        .route("/login", post(|| async { "welcome" }))
        .layer(layer);
    let status = async |path: &str| app.clone().oneshot(request(path, Body::empty())).await.unwrap().status();
    assert_eq!(status("/scores/1").await, StatusCode::OK);
    assert_eq!(status("/scores/2").await, StatusCode::OK);
    assert_eq!(status("/scores/3").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status("/login").await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn handlers_see_the_decision_and_can_settle() {
    let handler = async |admission: Extension<Admission>| {
        admission.settle(41).await.unwrap();
        admission.decision().remaining().to_string()
    };
    let limiter = limiter();
    let app = Router::new()
        .route("/", post(handler))
        .layer(RateLimitLayer::new(limiter.clone(), Rule::new(ClientIp::direct(), "large")).unwrap());
    let response = app.oneshot(request("/", Body::empty())).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "99");
    assert_eq!(limiter.peek("ip:203.0.113.7", ["large"], 0).await.unwrap().remaining(), 59);
}

#[tokio::test(start_paused = true)]
async fn bodies_stream_through_in_both_directions() {
    let app = Router::new()
        .route("/echo", post(async |body: Body| body))
        .layer(RateLimitLayer::new(limiter(), Rule::new(ClientIp::direct(), "large")).unwrap());
    let (mut send, body) = http_body_util::channel::Channel::<Bytes>::new(1);
    let response = app.oneshot(request("/echo", Body::new(body))).await.unwrap();
    assert_eq!(response.headers()["x-ratelimit-remaining"], "99");

    // The response is there before the first byte of the request is, and each piece arrives as it is sent.
    let mut echoed = response.into_body();
    for piece in ["one", "two"] {
        send.send_data(Bytes::from(piece)).await.unwrap();
        assert_eq!(echoed.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(send);
    assert!(echoed.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_forgot_to_tell_who_its_peers_are_is_told_at_once() {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter(), Rule::new(ClientIp::direct(), "small")).unwrap());
    let response = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}
