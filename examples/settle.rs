//! A request is charged an estimate when it comes in, and what it really cost when the answer is known.
//!
//! Run it with `cargo run -p spile --example settle`. It sends its own requests and prints what came back.

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use spile::key::{HeaderKey, ResolvedKey};
use spile::{Admission, Limit, MemoryStore, Plan, RateLimitLayer, RateLimiter, Rule};
use tower::ServiceExt;

/// What a completion is expected to use.
const ESTIMATE: u64 = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([Plan::new("model", Limit::per_minute(2_000))?])
        .build();
    let rule = Rule::new(HeaderKey::api_key(), "model").cost(ESTIMATE);
    let app =
        Router::new().route("/complete", post(complete)).layer(RateLimitLayer::new(limiter.clone(), rule)?);

    for prompt in ["short", "a very long one", "short"] {
        let request = Request::post("/complete").header("x-api-key", "ann").body(Body::from(prompt))?;
        let response = app.clone().oneshot(request).await?;
        let ann = ResolvedKey::header("x-api-key", b"ann");
        let left = limiter.peek(ann.as_str(), "model", 0).await?.remaining();
        println!("{prompt:?}: {}, {left} tokens left", response.status());
    }
    Ok(())
}

async fn complete(Extension(admission): Extension<Admission>, prompt: String) -> Result<String, StatusCode> {
    // The model says what it used only with its answer.
    let used = 100 * prompt.len() as u64;
    let settled = admission.settle(used).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(format!("used {used}, of which {} were not covered", settled.uncovered))
}
