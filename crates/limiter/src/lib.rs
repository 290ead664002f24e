//! May this key spend these tokens under these plans? [`RateLimiter`] answers that with any store.
//!
//! It looks the plans up and asks the store within a deadline. If the store fails, the failure policy decides. This crate must
//! not know where buckets are stored, nor how a request arrived.
//!
//! ```
//! # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; }
//! use spile::{Limit, MemoryStore, Plan, RateLimiter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::builder()
//!     .store(MemoryStore::new())
//!     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
//!     .build();
//!
//! let decision = limiter.allow("user:123", "free", 1).await?;
//! assert!(decision.allowed());
//! assert_eq!(decision.remaining(), 9);
//! # Ok(())
//! # }
//! ```

mod ask;
mod bucket_hash;
mod bucket_note;
mod clock;
mod deny_cache;
mod error;
mod lease;
mod limiter;
mod observer;
mod permit;

pub use ask::{Ask, AskedCharges};
pub use clock::TokioClock;
pub use error::{AcquireError, LimiterError, SettleError, StoreCallError, UnknownPlan};
pub use lease::LeaseStats;
pub use limiter::{
    ChargeDecision, EnforcedDecision, KeyedLimiter, PartialDecision, PlanList, RateLimiter,
    RateLimiterBuilder, RefundDecision, Reservation, Ruling, Settled, ShadowDecision, Wait,
};
pub use observer::{DecisionCounts, Observed, Observer, RuleName, Series};
pub use permit::{Permit, PermitCounts, PermitStats};
