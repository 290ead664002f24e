//! Decisions for every door: the limiter, the policy in force, and the store that holds the buckets.

pub(crate) mod buckets;
mod clock;
mod decider;
pub(crate) mod explanation;
pub(crate) mod health;
mod persistent_store;
mod store;
mod unanswered_permit;
pub(crate) mod usage;

pub(crate) use clock::Clocks;
pub(crate) use decider::{ActivePolicy, Decider};
pub(crate) use persistent_store::PersistentStore;
pub(crate) use store::ServerStore;
pub(crate) use unanswered_permit::UnansweredPermit;
