//! A client that keeps to the quota of the service it calls, host by host, instead of running into its 429.
//!
//! Run it with `cargo run -p spile --example outbound`. The service it calls runs beside it.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use spile::{Limit, MemoryStore, Plan, RateLimiter, Wait};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A client that waits until the host may be called again.
struct PoliteClient {
    http: Client<HttpConnector, Empty<&'static [u8]>>,
    limiter: RateLimiter<MemoryStore>,
}

impl PoliteClient {
    async fn get(&self, uri: Uri) -> Result<StatusCode, Box<dyn std::error::Error>> {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let turn =
            self.limiter.until_ready(&host, "partner", 1, Wait::at_most(Duration::from_secs(5))).await?;
        if !turn.allowed() {
            return Err(format!("{host} would keep us waiting {:?}", turn.retry_after()).into());
        }
        let response = self.http.request(Request::get(uri).body(Empty::new())?).await?;
        Ok(response.status())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri: Uri = format!("http://{}/", listener.local_addr()?).parse()?;
    let partner = Router::new().route("/", get(|| async { "hello" }));
    tokio::spawn(async { axum::serve(listener, partner).await });

    // Our partner grants us three requests at once and ten per second.
    let limiter = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([Plan::new("partner", Limit::per_second(10).burst(3))?])
        .build();
    let client = PoliteClient { http: Client::builder(TokioExecutor::new()).build_http(), limiter };
    let started = Instant::now();
    for call in 1..=8 {
        let status = client.get(uri.clone()).await?;
        println!("{:>4} ms: call {call} {status}", started.elapsed().as_millis());
    }
    Ok(())
}
