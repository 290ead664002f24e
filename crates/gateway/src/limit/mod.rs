//! Limits of three kinds: rates that the policy sets, rates that follow how upstreams fare, and a cap on the requests that
//! each upstream has under way.

mod adaptive;
mod caller_key;
mod fair_queue;
mod rate;

pub use adaptive::Adaptive;
pub use fair_queue::Concurrency;

pub(crate) use adaptive::Aimd;
pub(crate) use caller_key::PlaceHolder;
pub(crate) use fair_queue::{FairQueue, Permit, enter_any};
pub(crate) use rate::{Limits, Ruling};
