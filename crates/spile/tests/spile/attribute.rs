//! Functions under `#[rate_limit]` run as often as their caller may, and not once more.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::response::IntoResponse;
use spile::{
    FailurePolicy, FakeClock, Limit, LimiterError, MemoryStore, Plan, RateLimitExceeded, RateLimiter,
    rate_limit,
};
use tokio::sync::Notify;

struct Printer {
    limiter: RateLimiter<MemoryStore<FakeClock>>,
    printed: AtomicU64,
}

impl Printer {
    fn new(clock: FakeClock) -> Self {
        let gold = Plan::new("gold", Limit::per_second(1).burst(10)).unwrap();
        let daily = Plan::new("daily", Limit::per_day(15)).unwrap();
        let store = MemoryStore::builder().clock(clock).build();
        let limiter = RateLimiter::builder().store(store).plans([gold, daily]).build();
        Self { limiter, printed: AtomicU64::new(0) }
    }

    #[rate_limit(key = format_args!("user:{user_id}"), plan = "gold", tokens = pages, limiter = self.limiter)]
    async fn print(&self, user_id: u64, pages: u64) -> Result<u64, RateLimitExceeded> {
        Ok(self.printed.fetch_add(pages, Ordering::Relaxed) + pages)
    }

    #[rate_limit(key = user, plans = ["gold", "daily"], tokens = 10, limiter = self.limiter)]
    async fn bind(&self, user: &str) -> Result<(), RateLimitExceeded> {
        Ok(())
    }

    #[rate_limit(key = "all", plan = "platinum", limiter = self.limiter)]
    async fn gild(&self) -> Result<(), RateLimitExceeded> {
        Ok(())
    }
}

#[tokio::test]
async fn a_call_over_the_limit_does_not_run_and_carries_the_decision() {
    let printer = Printer::new(FakeClock::default());
    assert_eq!(printer.print(7, 8).await, Ok(8));
    let refused = printer.print(7, 8).await.unwrap_err();
    assert_eq!(refused.decision().unwrap().limited_by().unwrap().as_str(), "gold");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(6)));
    assert_eq!(refused.to_string(), "rate limit gold exceeded; retry after 6s");
    assert_eq!(printer.printed.load(Ordering::Relaxed), 8, "the body did not run");
    assert_eq!(printer.print(8, 8).await, Ok(16), "others are not affected");
}

#[tokio::test]
async fn a_caller_who_waits_is_let_in() {
    let clock = FakeClock::default();
    let printer = Printer::new(clock.clone());
    assert!(printer.print(7, 8).await.is_ok());
    let wait = printer.print(7, 8).await.unwrap_err().retry_after().unwrap();
    clock.advance(wait);
    assert!(printer.print(7, 8).await.is_ok());
}

#[tokio::test]
async fn a_chain_names_the_plan_that_refused() {
    let clock = FakeClock::default();
    let printer = Printer::new(clock.clone());
    assert!(printer.bind("ann").await.is_ok());
    clock.advance(Duration::from_secs(10));
    let refused = printer.bind("ann").await.unwrap_err();
    assert_eq!(refused.decision().unwrap().limited_by().unwrap().as_str(), "daily");
}

#[tokio::test]
async fn a_call_that_could_never_pass_is_told_why() {
    let printer = Printer::new(FakeClock::default());
    let unknown = printer.gild().await.unwrap_err();
    assert_eq!(unknown, RateLimitExceeded::Invalid(LimiterError::UnknownPlan("platinum".to_owned())));
    let too_much = printer.print(7, 11).await.unwrap_err();
    assert!(too_much.retry_after().is_none());
    assert_eq!(too_much.to_string(), "cost 11 is above 10, the capacity of limit gold: it can never pass");
}

#[tokio::test]
async fn the_error_is_the_response_that_the_layer_would_have_given() {
    let printer = Printer::new(FakeClock::default());
    assert!(printer.print(7, 8).await.is_ok());
    let response = printer.print(7, 8).await.unwrap_err().into_response();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "6");
    assert_eq!(printer.print(7, 11).await.unwrap_err().into_response().status(), 400);
    assert_eq!(printer.gild().await.unwrap_err().into_response().status(), 500);
    assert_eq!(RateLimitExceeded::NoLimiter.into_response().status(), 500);
}

struct Exporter {
    limiter: RateLimiter<MemoryStore<FakeClock>>,
    goes_on: Notify,
}

impl Exporter {
    fn new() -> Self {
        let exports = Plan::new("exports", Limit::concurrent(1)).unwrap();
        let daily = Plan::new("daily", Limit::per_day(2)).unwrap();
        let store = MemoryStore::builder().clock(FakeClock::default()).build();
        let limiter = RateLimiter::builder().store(store).plans([exports, daily]).build();
        Self { limiter, goes_on: Notify::new() }
    }

    fn held(&self) -> usize {
        self.limiter.store().usage().permits
    }

    #[rate_limit(key = user, plan = "daily", concurrency = "exports", limiter = self.limiter)]
    async fn export(&self, user: &str) -> Result<usize, RateLimitExceeded> {
        self.goes_on.notified().await;
        Ok(self.held())
    }

    #[rate_limit(key = user, concurrency = "exports", limiter = self.limiter)]
    async fn fail(&self, user: &str) -> Result<(), RateLimitExceeded> {
        assert_eq!(user, "ben", "the function panics");
        Err(RateLimitExceeded::NoLimiter)
    }

    #[rate_limit(key = user, concurrency = "daily", limiter = self.limiter)]
    async fn mistake(&self, user: &str) -> Result<(), RateLimitExceeded> {
        Ok(())
    }
}

/// Polls the future once. True if it has not ended.
async fn goes_on<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_permit_is_held_while_the_function_runs_and_is_taken_with_the_tokens_or_not_at_all() {
    let exporter = Exporter::new();
    let mut first = Box::pin(exporter.export("ann"));
    assert!(goes_on(first.as_mut()).await);
    assert_eq!(exporter.held(), 1);
    let refused = exporter.export("ann").await.unwrap_err();
    assert_eq!(refused.to_string(), "concurrency limit exports reached; retry after 1s");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    exporter.goes_on.notify_one();
    assert_eq!((first.await, exporter.held()), (Ok(1), 0), "held to the end, and no longer");

    let mut second = Box::pin(exporter.export("ann"));
    assert!(goes_on(second.as_mut()).await, "the refusal cost no token");
    drop(second);
    assert_eq!(exporter.held(), 0, "a future that is dropped holds nothing");
    let refused = exporter.export("ann").await.unwrap_err();
    assert_eq!(refused.decision().unwrap().limited_by().unwrap().as_str(), "daily");
    assert_eq!(exporter.held(), 0, "no permit without the token");
}

#[tokio::test]
async fn a_function_that_fails_or_panics_holds_no_permit() {
    let exporter = Arc::new(Exporter::new());
    assert_eq!((exporter.fail("ben").await, exporter.held()), (Err(RateLimitExceeded::NoLimiter), 0));
    let own = Arc::clone(&exporter);
    assert!(tokio::spawn(async move { own.fail("ann").await }).await.unwrap_err().is_panic());
    assert_eq!(exporter.held(), 0);
    let mistake = exporter.mistake("ann").await.unwrap_err();
    assert_eq!(mistake.to_string(), "no limit of daily is a concurrency, so that there is no permit to take");
}

#[rate_limit(key = user, concurrency = "one")]
async fn alone(user: &str) -> Result<(), RateLimitExceeded> {
    assert!(matches!(Box::pin(alone(user)).await, Err(RateLimitExceeded::Denied(_))));
    Ok(())
}

#[rate_limit(key = user, plan = "free")]
async fn greet(user: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[tokio::test]
async fn functions_that_name_no_limiter_ask_the_one_that_was_set() {
    assert_eq!(greet("ann").await, Err(RateLimitExceeded::NoLimiter));

    assert_eq!(alone("ann").await, Err(RateLimitExceeded::NoLimiter));
    let free = Plan::new("free", Limit::per_minute(1)).unwrap();
    let one = Plan::new("one", Limit::concurrent(1)).unwrap();
    let limiter = || {
        RateLimiter::builder()
            .store(MemoryStore::new())
            .plans([free.clone(), one.clone()])
            .on_failure(FailurePolicy::Deny)
            .build()
    };
    spile::set_global_limiter(limiter()).unwrap();
    assert!(greet("ann").await.is_ok());
    assert_eq!(alone("ann").await, Ok(()));
    assert!(matches!(greet("ann").await, Err(RateLimitExceeded::Denied(_))));
    assert!(spile::set_global_limiter(limiter()).is_err(), "the first one stays");
}
