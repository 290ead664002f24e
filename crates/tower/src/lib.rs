//! Spile as tower middleware: a layer for axum, hyper, tonic and whatever else speaks [`http`].
//!
//! [`RateLimitLayer`] asks a [`RateLimiter`](spile_limiter::RateLimiter) about each request by its [`Rule`]s, and
//! answers in the service's place where the decision is no. Who pays is found by the resolvers in [`key`], what the
//! caller is told is written by the functions in [`response`]. This crate must not know where buckets live.

#![deny(missing_docs)]

pub mod client;
pub mod key;
mod layer;
pub mod response;
mod rule;

pub use layer::{Admission, Builder, Keyless, RateLimit, RateLimitLayer, ResponseFuture};
pub use response::{Cause, Refusal, ReplyBody};
pub use rule::{PlanNames, PlanResolver, PlansBy, Rule, TenantPlan};
pub use spile_limiter::Settled;
