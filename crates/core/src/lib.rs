//! The domain of Spile: token buckets, what a request costs, and what a decision means.
//!
//! This crate has no I/O: it must not know about Redis, HTTP, tokio or serde. It reads the time, and only in [`clock`].
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
mod limit;
mod one_or_many;
mod plan;
mod short_text;
mod store;
mod units;

pub use bucket::{
    Bucket, BucketSlot, PermitSet, acquire, charge, peek, permit, refund, refund_once, settle, spend,
    spend_up_to,
};
pub use charge::{
    Charge, ChargeError, Charges, Cost, CostError, Key, KeyError, PermitId, PermitIdError, RefundId,
    RefundIdError, ReservationMarker, ReservationTtlError,
};
pub use clock::{Clock, FakeClock, SlewedClock, SystemClock};
pub use decision::{
    Decision, DecisionSource, FailurePolicy, FailureReason, LimitStatus, Reason, UnknownPolicy,
};
pub use limit::{Limit, LimitBuilder, LimitError, LimitTextError, QuotaWindows, Window, Windows};
pub use one_or_many::OneOrMany;
pub use plan::{InMemoryPlans, LimitName, NameError, NamedLimit, Plan, PlanError, PlanName, PlanRegistry};
pub use store::{
    ChargeOutcome, EitherStore, EmbeddedStore, HeldPermit, Outcome, PartialOutcome, PermitStep,
    RefundOutcome, SettleOutcome, Spent, Store, StoreError,
};
pub use units::{MicroTokens, Micros};
