//! The domain of Spile: limits, token buckets, charges and decisions.
//!
//! This crate has no I/O: it must not know about Redis, HTTP, tokio or serde. It reads the time, and only in [`clock`].
//!
//! ```
//! use spile_core::{Amount, Bucket, Cost, Limit, Micros};
//!
//! let limit = Limit::per_second(1).burst(10).build()?;
//! let now = Micros::from_secs(1_000);
//! let after = Bucket::full(&limit, now).spend(&limit, Cost::new(3)?, now).expect("ten tokens cover three");
//! assert_eq!(after.available(&limit, now), Amount::from(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amount;
mod bucket;
mod charge;
pub mod clock;
mod decision;
mod limit;
mod micros;
mod one_or_many;
mod plan;
mod short_text;
mod store;
mod unit;
mod words;

pub use amount::{Amount, AmountTextError};
pub use bucket::{Bucket, BucketSlot, ChainPermits, PermitSet, decide, permit};
pub use charge::{
    Charge, ChargeError, Charges, Cost, CostError, Key, KeyError, PermitId, PermitIdError, RefundId,
    RefundIdError, ReservationId, ReservationTtlError,
};
pub use clock::{Clock, FakeClock, SlewedClock, SystemClock};
pub use decision::{
    Decision, DecisionSource, FailurePolicy, FailureReason, LimitStatus, Reason, UnknownPolicy,
};
pub use limit::{
    Concurrency, ConcurrencyBuilder, Limit, LimitError, LimitTextError, Quota, QuotaBuilder, QuotaWindows,
    Rate, RateBuilder, Shape, Window, Windows,
};
pub use micros::Micros;
pub use one_or_many::OneOrMany;
pub use plan::{InMemoryPlans, LimitName, NameError, NamedLimit, Plan, PlanError, PlanName, PlanRegistry};
pub use store::{
    Answer, ChargeOutcome, EitherStore, EmbeddedStore, HeldPermit, Inspect, Kept, MARKER_TIME, Operation,
    Outcome, PartialOutcome, PermitStep, RefundOutcome, Reply, SettleOutcome, SpendTime, Spent, Store,
    StoreError, StoreExt, Verdict,
};
pub use unit::{Currency, Unit, UnknownUnit};
