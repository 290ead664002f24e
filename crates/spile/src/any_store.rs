//! The store that a URL names, chosen when the program starts.

use spile_core::EitherStore;
use spile_memory::MemoryStore;
use spile_redis::{RedisBuildError, RedisStore};

/// A store that is chosen at run time: in this process, or in Redis. [`open_store`] makes one of a URL.
pub type AnyStore = EitherStore<MemoryStore, RedisStore>;

/// The store that a URL names: `memory:` is in this process, `redis://…`, `rediss://…`, `unix:…`, `redis-sentinel://…` and
/// `redis-cluster://…` are in Redis.
///
/// ```
/// use spile::{Limit, Plan, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = std::env::var("RATE_LIMIT_STORE").unwrap_or("memory:".to_owned());
/// let limiter = RateLimiter::builder()
///     .store(spile::open_store(&url)?)
///     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
///     .build();
/// assert!(limiter.allow("user:123", "free", 1).await?.allowed());
/// # Ok(())
/// # }
/// ```
///
/// Redis need not be there yet: until it is, the failure policy decides.
pub fn open_store(url: &str) -> Result<AnyStore, RedisBuildError> {
    Ok(match url {
        "memory:" => AnyStore::Embedded(MemoryStore::new()),
        url => AnyStore::Shared(RedisStore::builder(url).build()?),
    })
}
