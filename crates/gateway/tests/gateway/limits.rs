//! Limits: decided before anything is forwarded, and told to the client in every answer.

use std::time::Duration;

use spile_core::FakeClock;
use spile_gateway::{Gateway, Route};

use crate::support::{Backend, by_tenant_or_address, limiter_on, plan, running};

#[tokio::test]
async fn a_free_caller_gets_ten_of_fifteen_and_five_more_after_five_seconds() {
    let backend = Backend::friendly().await;
    let clock = FakeClock::default();
    let gateway = running(
        Gateway::builder(limiter_on(&clock, [plan("free", 10, 1)]))
            .clock(clock.clone())
            .route(Route::new("/", [backend.upstream()]).unwrap())
            .rule(by_tenant_or_address("default")),
    )
    .await;
    let mut client = gateway.client().await;
    for passed in 0..10 {
        let answer = client.get("/scores", &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("10"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some((9 - passed).to_string().as_str()));
    }
    for _ in 0..5 {
        let answer = client.get("/scores", &[]).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"], "Rate limit exceeded");
    }
    assert_eq!(backend.seen().len(), 10, "what is denied never reaches the upstream");
    clock.advance(Duration::from_secs(5));
    for _ in 0..5 {
        assert_eq!(client.get("/scores", &[]).await.status, 200);
    }
    assert_eq!(client.get("/scores", &[]).await.status, 429);
}
