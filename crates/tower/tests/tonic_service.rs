//! The layer in front of a tonic server, over a real connection.

use common::limiter;
use spile_tower::key::ClientIp;
use spile_tower::{RateLimitLayer, Rule};
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

mod common;

/// A client of a health service whose callers may make two calls.
async fn limited_health() -> HealthClient<Channel> {
    let layer = RateLimitLayer::new(limiter(), Rule::new(ClientIp::direct(), "small")).unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

#[tokio::test]
async fn a_call_over_the_limit_fails_with_resource_exhausted_and_says_when_to_retry() {
    let mut client = limited_health().await;
    for left in ["1", "0"] {
        let answer = client.check(HealthCheckRequest::default()).await.unwrap();
        assert_eq!(answer.metadata().get("x-ratelimit-remaining").unwrap(), left);
    }
    let refused = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "Too many requests. Please retry after 1 second.");
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "1");
    assert!(refused.metadata().contains_key("grpc-retry-pushback-ms"));
}

#[tokio::test]
async fn a_stream_over_the_limit_fails_before_its_first_message() {
    let mut client = limited_health().await;
    for _ in 0..2 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
    let refused = client.watch(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}
