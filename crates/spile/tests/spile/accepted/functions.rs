use std::rc::Rc;

use spile::{LimiterError, MemoryStore, RateLimitExceeded, RateLimiter, rate_limit};

type ApiResult<T> = Result<T, ApiError>;

#[derive(Debug)]
#[allow(dead_code)]
enum ApiError {
    Limited(RateLimitExceeded),
    Asked(LimiterError),
}

impl From<RateLimitExceeded> for ApiError {
    fn from(exceeded: RateLimitExceeded) -> Self {
        Self::Limited(exceeded)
    }
}

/// The key may be any expression over the arguments, and so may everything else.
#[rate_limit(key = format!("user:{}", user.0), plans = ["gold", "daily"], tokens = pages * 2, limiter = limiter)]
async fn print<'a, S: spile::Store>(
    limiter: &RateLimiter<S>,
    user: (u64, &'a str),
    pages: u64,
) -> ApiResult<&'a str> {
    Ok(user.1)
}

/// A trailing comma and the global limiter.
#[rate_limit(key = id, plan = "gold",)]
pub(crate) async fn scan(id: u128) -> Result<u128, Box<dyn std::error::Error + Send + Sync>> {
    if id == 0 {
        return Err("nothing to scan".into());
    }
    Ok(id)
}

/// What the key is made of need not be `Send`; the future is all the same.
#[rate_limit(key = Rc::new("everybody"), plan = String::from("gold"), tokens = 1)]
async fn copy() -> Result<(), RateLimitExceeded> {
    Ok(())
}

/// An argument called `key` stays what it is in the other expressions.
#[rate_limit(key = key + 1, plan = "gold", tokens = key)]
async fn measure(key: u64) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn is_send<T: Send>(_: T) {}

#[test]
fn they_compile() {
    let limiter = RateLimiter::builder().store(MemoryStore::new()).build();
    is_send(print(&limiter, (1, "ann"), 1));
    is_send(scan(1));
    is_send(copy());
    is_send(measure(1));
}
