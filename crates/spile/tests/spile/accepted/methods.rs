use std::sync::Arc;

use spile::{MemoryStore, RateLimitExceeded, RateLimiter, rate_limit};

struct Printer {
    limiter: RateLimiter<MemoryStore>,
    shared: Arc<RateLimiter<MemoryStore>>,
    plan: String,
    pages: u64,
}

trait Prints {
    fn print(&mut self, user: &str) -> impl Future<Output = Result<u64, RateLimitExceeded>>;
}

impl Prints for Printer {
    #[rate_limit(key = user, plan = &self.plan, tokens = 1, limiter = self.limiter)]
    async fn print(&mut self, user: &str) -> Result<u64, RateLimitExceeded> {
        self.pages += 1;
        Ok(self.pages)
    }
}

impl Printer {
    #[rate_limit(key = user, plans = &[self.plan.clone()], limiter = self.shared)]
    async fn scan(&self, user: &str) -> Result<(), RateLimitExceeded> {
        let _ = user;
        Ok(())
    }

    #[rate_limit(key = "all", plans = vec!["gold"], limiter = &self.limiter)]
    async fn consume(self) -> Result<Self, RateLimitExceeded> {
        Ok(self)
    }
}

#[test]
fn they_compile() {
    let limiter = RateLimiter::builder().store(MemoryStore::new()).build();
    let mut printer =
        Printer { limiter: limiter.clone(), shared: Arc::new(limiter), plan: "gold".to_owned(), pages: 0 };
    drop(printer.print("ann"));
    drop(printer.scan("ann"));
    drop(printer.consume());
}
