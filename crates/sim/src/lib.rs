//! A fleet of limiters on a model of Redis, in one thread and in virtual time, from one seed.
//!
//! [`Scenario::generate`](scenario::Scenario::generate) draws what happens, [`run`](fleet::run) lets it happen to real limiters, and the
//! judges in [`oracle`] say which promise was broken. The same scenario gives the same trace.

pub mod coverage;
pub mod fleet;
mod network;
pub mod oracle;
pub mod redis;
pub mod reduce;
pub mod scenario;
pub mod scheduler;
pub mod trace;
