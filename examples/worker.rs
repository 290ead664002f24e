//! A background worker that waits its turn: ten jobs against a quota of five at once and ten per second.
//!
//! Run it with `cargo run -p spile --example worker`.

use std::time::Duration;

use spile::{Limit, MemoryStore, Plan, RateLimiter, Wait};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([Plan::new("mail", Limit::per_second(10).burst(5))?])
        .build();
    let started = Instant::now();
    for job in 1..=10 {
        // Jitter keeps workers that wait together from waking together.
        let wait = Wait::forever().with_jitter(Duration::from_millis(10));
        let turn = limiter.until_ready("worker:mail", "mail", 1, wait).await?;
        // A store over the network may fail: then it is a denial at once, and not a turn.
        assert!(turn.allowed(), "{:?}", turn.failure());
        println!("{:>4} ms: job {job}, {} left", started.elapsed().as_millis(), turn.remaining());
    }

    // Whoever cannot wait as long as it takes is told at once, and nothing is spent.
    let decision =
        limiter.until_ready("worker:mail", "mail", 5, Wait::at_most(Duration::from_millis(50))).await?;
    println!("five more: allowed {}, ready in {:?}", decision.allowed(), decision.retry_after());
    Ok(())
}
