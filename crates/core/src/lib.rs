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
mod chain;
mod charge;
pub mod clock;
mod cost;
mod decision;
mod failure;
mod few;
mod key;
mod limit;
mod limit_text;
mod name;
mod outcome;
mod plan;
mod refund_id;
mod registry;
mod short_text;
mod store;
mod units;

pub use bucket::Bucket;
pub use chain::{Slot, peek, refund, refund_once, spend, spend_up_to};
pub use charge::{Charge, ChargeError, Charges};
pub use clock::{Clock, FakeClock, SlewedClock, SystemClock};
pub use cost::{Cost, CostError};
pub use decision::{Decision, LimitStatus, Reason, Source};
pub use failure::{FailurePolicy, FailureReason, UnknownPolicy};
pub use few::Few;
pub use key::{Key, KeyError};
pub use limit::{Limit, LimitBuilder, LimitError};
pub use limit_text::LimitTextError;
pub use name::{LimitName, NameError, PlanName};
pub use outcome::{Outcome, PartialOutcome, RefundOutcome};
pub use plan::{NamedLimit, Plan, PlanError};
pub use refund_id::{RefundId, RefundIdError};
pub use registry::{InMemoryPlans, PlanRegistry};
pub use store::{Store, StoreError};
pub use units::{MicroTokens, Micros};
