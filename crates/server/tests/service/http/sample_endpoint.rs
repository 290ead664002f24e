//! `GET /api/ping`, what a limited service looks like from outside.

use std::time::Duration;

use crate::support::Spile;

#[tokio::test]
async fn ten_pings_pass_and_the_eleventh_is_told_when_to_come_back() {
    let spile = Spile::start().await;
    let caller = &[("x-api-key", "demo")];
    for left in (0..10).rev() {
        let answer = spile.get("/api/ping", caller).await.is(200).says("/message", "pong");
        answer.carries("x-ratelimit-remaining", &left.to_string());
    }
    spile
        .get("/api/ping", caller)
        .await
        .is(429)
        .carries("content-type", "application/problem+json")
        .carries("retry-after", "1")
        .carries("cache-control", "no-store")
        .says("/type", "https://iana.org/assignments/http-problem-types#quota-exceeded")
        .says("/title", "Rate limit exceeded")
        .says("/status", 429)
        .says("/detail", "Too many requests. Please retry after 1 second.")
        .says("/message", "Too many requests. Please retry after 1 second.")
        .says("/error", "Rate limit exceeded")
        .says("/violated-policies/0", "free")
        .says("/limit", 10)
        .says("/remaining", 0)
        .says("/resetAt", "2027-01-15T08:00:10.000Z");
    spile.advance(Duration::from_secs(1));
    spile.get("/api/ping", caller).await.is(200);
}

#[tokio::test]
async fn a_key_that_reads_like_an_address_does_not_spend_that_addresss_tokens() {
    let spile = Spile::start().await;
    for _ in 0..10 {
        spile.get("/api/ping", &[]).await.is(200);
    }
    spile.get("/api/ping", &[]).await.is(429);
    for key in ["127.0.0.1", "ip:127.0.0.1"] {
        spile.get("/api/ping", &[("x-api-key", key)]).await.is(200).carries("x-ratelimit-remaining", "9");
    }
}

#[tokio::test]
async fn a_key_of_any_length_has_a_bucket_of_its_own() {
    let spile = Spile::start().await;
    let (long, other) = ("k".repeat(2_000), "k".repeat(2_001));
    for left in ["9", "8"] {
        spile.get("/api/ping", &[("x-api-key", &long)]).await.is(200).carries("x-ratelimit-remaining", left);
    }
    spile.get("/api/ping", &[("x-api-key", &other)]).await.is(200).carries("x-ratelimit-remaining", "9");
}
