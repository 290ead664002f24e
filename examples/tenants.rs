//! Tenants with plans of their own, chained limits, and a ceiling for the whole service, in one atomic decision.
//!
//! Run it with `cargo run -p spile --example tenants`. It sends its own requests and prints what came back.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use spile::key::{Fixed, KeyResolver, PrincipalKey, Tenant, TenantKey};
use spile::{Admission, Keyless, Limit, MemoryStore, Plan, RateLimitLayer, RateLimiter, Rule, TenantPlan};
use tower::ServiceExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plans = [
        Plan::new("free", Limit::per_second(1).burst(3))?,
        // A chain: five at once, and eight in a day.
        Plan::chain("gold", [("burst", Limit::per_second(1).burst(5)), ("daily", Limit::per_day(8))])?,
        Plan::new("service", Limit::per_second(50).burst(100))?,
    ];
    let limiter = RateLimiter::builder().store(MemoryStore::new()).plans(plans).build();
    let limit = RateLimitLayer::builder(
        limiter,
        Rule::new(TenantKey.or(PrincipalKey::new()), TenantPlan::or("free")),
    )
    .and(Rule::new(Fixed::new("everyone"), "service"))
    .keyless(Keyless::Share)
    .name("api")
    .build()?;
    let app = Router::new()
        .route(
            "/",
            get(async |admission: Extension<Admission>| format!("{} left", admission.decision().remaining())),
        )
        .layer(limit)
        // Authentication stands outside the limit: the limit needs to know who it is.
        .layer(from_fn(authenticate));

    for api_key in ["acme-key", "nobody"] {
        for call in 1..=6 {
            let request = Request::get("/").header("x-api-key", api_key).body(Body::empty())?;
            let response = app.clone().oneshot(request).await?;
            let told = response.headers().get("ratelimit").and_then(|told| told.to_str().ok()).unwrap_or("");
            println!("{api_key} {call}: {} {told}", response.status());
        }
    }
    Ok(())
}

/// Finds the tenant of an API key. A real service would look it up by the key's hash.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let api_key = request.headers().get("x-api-key").and_then(|key| key.to_str().ok());
    if api_key == Some("acme-key") {
        request.extensions_mut().insert(Tenant::new("acme").on_plan("gold"));
    }
    next.run(request).await
}
