//! A token-bucket rate limiter for Rust services: the same exact decision in one process or across many.
//!
//! ```
//! use spile::{Limit, MemoryStore, Plan, RateLimiter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::builder()
//!     .store(MemoryStore::new())
//!     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
//!     .build();
//!
//! let decision = limiter.allow("user:123", ["free"], 1).await?;
//! assert!(decision.allowed());
//! assert_eq!(decision.remaining(), 9);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All of them add and none takes away.
//!
//! | feature | brings |
//! |---|---|
//! | `memory` (default) | [`MemoryStore`]: buckets in this process |
//! | `redis` | [`RedisStore`]: buckets in Redis or Valkey, shared by every instance |
//! | `tower` | [`RateLimitLayer`] for any tower HTTP stack, the resolvers in [`key`], the answers in [`response`] |
//! | `axum`, `tonic` | the same with the bodies, peers and routes of axum and tonic |
//! | `macros` | the attribute [`macro@rate_limit`] |
//!
//! This crate holds no logic of its own but what the attribute needs; it is the names under which to find the rest.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "macros")]
pub mod attribute;
#[cfg(feature = "macros")]
mod exceeded;
#[cfg(feature = "macros")]
mod global;
#[cfg(doctest)]
mod guide;

pub use spile_core::{
    Charge, ChargeError, Charges, Clock, Cost, CostError, Decision, FailurePolicy, FailureReason, FakeClock,
    InMemoryPlans, Key, KeyError, Limit, LimitBuilder, LimitError, LimitName, LimitStatus, Micros, NameError,
    NamedLimit, Outcome, PartialOutcome, Plan, PlanError, PlanName, PlanRegistry, Reason, RefundId,
    RefundIdError, RefundOutcome, SlewedClock, Source, Store, StoreError, SystemClock,
};
pub use spile_limiter::{
    Ask, Builder, LimiterError, Observed, Observer, PartialDecision, RateLimiter, RefundDecision,
    StoreFailed, TokioClock, Wait,
};

#[cfg(feature = "memory")]
pub use spile_memory::{self as memory, MemoryStore};

#[cfg(feature = "redis")]
pub use spile_redis::{self as redis, RedisStore};

#[cfg(feature = "tower")]
pub use spile_tower::{
    self as tower, Admission, Cause, Keyless, PlanNames, PlanResolver, PlansBy, RateLimit, RateLimitLayer,
    Refusal, ReplyBody, Rule, Settled, TenantPlan, client, key, response,
};

#[cfg(feature = "macros")]
pub use exceeded::RateLimitExceeded;
#[cfg(feature = "macros")]
pub use global::{AlreadySet, set_global_limiter};

/// Lets an async function or method run only where its caller may spend the tokens.
///
/// ```
/// use spile::{Limit, MemoryStore, Plan, RateLimitExceeded, RateLimiter, rate_limit};
///
/// struct Reports {
///     limiter: RateLimiter<MemoryStore>,
/// }
///
/// impl Reports {
///     #[rate_limit(key = format!("user:{user_id}"), plan = "gold", tokens = pages, limiter = self.limiter)]
///     async fn print(&self, user_id: u64, pages: u64) -> Result<String, RateLimitExceeded> {
///         Ok(format!("{pages} pages"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gold = Plan::new("gold", Limit::per_minute(100))?;
/// let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([gold]).build();
/// let reports = Reports { limiter };
/// assert_eq!(reports.print(7, 80).await?, "80 pages");
///
/// let refused = reports.print(7, 80).await.unwrap_err();
/// assert!(refused.retry_after().is_some());
/// # Ok(())
/// # }
/// ```
///
/// | argument | is | without it |
/// |---|---|---|
/// | `key` | who pays: any expression over the arguments that can be displayed | an error |
/// | `plan` | the name of a plan, as any expression that reads as `&str` | give `plans` |
/// | `plans` | several plans, all charged or none: `["gold", "daily"]` | give `plan` |
/// | `tokens` | what a call costs, as any expression that is a `u64` | 1 |
/// | `limiter` | which limiter decides, as any expression: `self.limiter` | the one given to [`set_global_limiter`] |
///
/// The function returns `Result<_, E>`, where `E` implements `From<RateLimitExceeded>`. A call that is over a limit
/// returns that error before any of the function's body runs. Two functions with the same key and plan share a
/// bucket; put the function's name into the key where they should not.
#[cfg(feature = "macros")]
pub use spile_macros::rate_limit;
