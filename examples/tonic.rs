//! A gRPC service whose callers may make five calls at once, and a client that runs into the limit.
//!
//! Run it with `cargo run -p spile --example tonic`.

use spile::key::ClientIp;
use spile::{Limit, MemoryStore, Plan, RateLimitLayer, RateLimiter, Rule};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([Plan::new("calls", Limit::per_second(1).burst(5))?])
        .build();
    let limit = RateLimitLayer::new(limiter, Rule::new(ClientIp::direct(), "calls"))?;

    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(limit).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for call in 1..=7 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(answer) => {
                let left = answer.metadata().get("x-ratelimit-remaining").and_then(|left| left.to_str().ok());
                println!("call {call}: ok, {} left", left.unwrap_or("?"));
            }
            Err(status) => println!("call {call}: {:?}, {}", status.code(), status.message()),
        }
    }
    Ok(())
}
