//! What HTTP alone costs: axum, reading the body of a question and answering with the body of a decision that is
//! always the same. `bench/http/run` measures `spile serve` against it.

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;

/// The same allocator as `spile`, so that only the work differs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DECISION: &str = r#"{"allowed":true,"limit":1000000000,"remaining":999999999,"retryAfterMs":0,"resetAfterMs":1,"limitedBy":null,"reason":"ok","degraded":false,"limits":[{"name":"bench","limit":1000000000,"remaining":999999999,"retryAfterMs":0,"resetAfterMs":1}]}"#;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().route("/v1/check", post(echo))).await
}

async fn echo(question: Bytes) -> impl IntoResponse {
    // Reading the question to its end is part of the price of answering it.
    drop(question);
    ([(CONTENT_TYPE, "application/json")], DECISION)
}
