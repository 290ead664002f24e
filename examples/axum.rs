//! Ten requests at once and one more each second, per client address.
//!
//! Run it with `cargo run -p spile --example axum`, then `curl -i http://127.0.0.1:3000/` a dozen times.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use spile::key::ClientIp;
use spile::{Limit, MemoryStore, Plan, RateLimitLayer, RateLimiter, Rule};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
        .build();
    let limit = RateLimitLayer::new(limiter, Rule::new(ClientIp::direct(), "free"))?;
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limit);

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // The layer learns the client's address from here.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
