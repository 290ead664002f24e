//! The whole question, asked of any store: may this key spend so many tokens under these plans?
//!
//! [`RateLimiter`] looks the plans up, asks the store within a deadline, and where the store fails lets the
//! failure policy decide. It must not know where buckets live, nor how a request arrived.
//!
//! ```
//! use spile_core::{Limit, Plan};
//! use spile_limiter::RateLimiter;
//! use spile_memory::MemoryStore;
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

mod ask;
mod clock;
mod error;
mod limiter;
mod observer;

pub use ask::Ask;
pub use clock::TokioClock;
pub use error::{LimiterError, StoreFailed, UnknownPlan};
pub use limiter::{
    Builder, KeyedLimiter, PartialDecision, PlanList, RateLimiter, RefundDecision, Settled, Wait, is_taken,
};
pub use observer::{Counts, Observed, Observer, RuleName, Series};
