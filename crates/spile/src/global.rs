//! The limiter that functions under `#[rate_limit]` ask unless they name another.

use std::pin::Pin;
use std::sync::OnceLock;

use spile_core::{Decision, Store};
use spile_limiter::{LimiterError, Permit, RateLimiter};

use crate::attribute::Acquires;
use crate::exceeded::RateLimitExceeded;

static LIMITER: OnceLock<Box<dyn AnyLimiter>> = OnceLock::new();

/// Makes `limiter` the one that `#[rate_limit]` asks if it names no `limiter`. Call it once, when the process starts.
///
/// ```
/// use spile::{Limit, MemoryStore, Plan, RateLimitExceeded, RateLimiter, rate_limit};
///
/// #[rate_limit(key = user, plan = "free")]
/// async fn greet(user: &str) -> Result<String, RateLimitExceeded> {
///     Ok(format!("hello {user}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let free = Plan::new("free", Limit::per_minute(1))?;
/// spile::set_global_limiter(RateLimiter::builder().store(MemoryStore::new()).plans([free]).build())?;
/// assert_eq!(greet("ann").await?, "hello ann");
/// assert!(greet("ann").await.is_err());
/// # Ok(())
/// # }
/// ```
pub fn set_global_limiter<S: Store + 'static>(limiter: RateLimiter<S>) -> Result<(), AlreadySet> {
    LIMITER.set(Box::new(limiter)).map_err(|_| AlreadySet)
}

/// There is a global limiter already, and it stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a global limiter is set already; name others with `limiter = …`")]
#[non_exhaustive]
pub struct AlreadySet;

pub(crate) fn limiter() -> Option<&'static dyn AnyLimiter> {
    LIMITER.get().map(|limiter| &**limiter)
}

/// A limiter without the type of its store.
pub(crate) trait AnyLimiter: Send + Sync {
    fn allow<'a>(
        &'a self,
        key: &'a str,
        plans: &'a [String],
        tokens: u64,
    ) -> Asking<'a, Result<Decision, LimiterError>>;

    fn acquire<'a>(
        &'a self,
        key: &'a str,
        plans: &'a [String],
        tokens: u64,
    ) -> Asking<'a, Result<Permit, RateLimitExceeded>>;
}

type Asking<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl<S: Store + 'static> AnyLimiter for RateLimiter<S> {
    fn allow<'a>(
        &'a self,
        key: &'a str,
        plans: &'a [String],
        tokens: u64,
    ) -> Asking<'a, Result<Decision, LimiterError>> {
        Box::pin(self.allow(key, plans, tokens))
    }

    fn acquire<'a>(
        &'a self,
        key: &'a str,
        plans: &'a [String],
        tokens: u64,
    ) -> Asking<'a, Result<Permit, RateLimitExceeded>> {
        Box::pin(Acquires::acquire(self, key, plans, tokens))
    }
}
