use std::sync::Arc;

use spile::{MemoryStore, RateLimitExceeded, RateLimiter, Store, rate_limit};

struct Exporter {
    shared: Arc<RateLimiter<MemoryStore>>,
    plan: String,
}

impl Exporter {
    /// The future may be sent to another thread, although the permit lives in it.
    #[rate_limit(key = user, plans = ["gold", "daily"], concurrency = &self.plan, tokens = 3, limiter = self.shared)]
    async fn export(&self, user: &str) -> Result<(), RateLimitExceeded> {
        let _permit = user;
        Ok(())
    }
}

#[rate_limit(key = "all", concurrency = "jobs")]
async fn run() -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[rate_limit(key = "all", plan = "gold", concurrency = "jobs", limiter = limiter)]
async fn run_on<S: Store + 'static>(limiter: &RateLimiter<S>) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn sent(future: impl Future + Send) {
    drop(future);
}

#[test]
fn they_compile() {
    let limiter = RateLimiter::builder().store(MemoryStore::new()).build();
    sent(run_on(&limiter));
    sent(run());
    let exporter = Exporter { shared: Arc::new(limiter), plan: "jobs".to_owned() };
    sent(exporter.export("ann"));
}
