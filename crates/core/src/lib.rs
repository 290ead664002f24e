//! The domain of Spile: what a token bucket is, what it costs to pass, and what the answer means.
//!
//! Everything here is arithmetic and names. This crate must not know about Redis, HTTP, tokio, serde or any
//! other I/O; the one outside thing it touches is time, and only in [`clock`].
//!
//! ```
//! use spile_core::{Bucket, Cost, Limit, Micros};
//!
//! let limit = Limit::per_second(1).burst(10).build()?;
//! let now = Micros::from_secs(1_000);
//! let after = Bucket::full(&limit, now).spend(&limit, Cost::new(3)?, now).expect("ten tokens cover three");
//! assert_eq!(after.available(&limit, now).whole_tokens(), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bucket;
mod charge;
pub mod clock;
mod decision;
mod few;
mod limit;
mod plan;
mod short_text;
mod store;
mod units;

pub use bucket::{Bucket, Slot, peek, refund, refund_once, spend, spend_up_to};
pub use charge::{Charge, ChargeError, Charges, Cost, CostError, Key, KeyError, RefundId, RefundIdError};
pub use clock::{Clock, FakeClock, SlewedClock, SystemClock};
pub use decision::{Decision, FailurePolicy, FailureReason, LimitStatus, Reason, Source, UnknownPolicy};
pub use few::Few;
pub use limit::{Limit, LimitBuilder, LimitError, LimitTextError};
pub use plan::{InMemoryPlans, LimitName, NameError, NamedLimit, Plan, PlanError, PlanName, PlanRegistry};
pub use store::{EitherStore, EmbeddedStore, Outcome, PartialOutcome, RefundOutcome, Store, StoreError};
pub use units::{MicroTokens, Micros};
