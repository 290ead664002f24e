//! Spile as tower middleware: a layer for axum, hyper, tonic and whatever else speaks [`http`].
//!
//! [`RateLimitLayer`] asks a [`RateLimiter`](spile_limiter::RateLimiter) about each request by its [`Rule`]s, and
//! answers in the service's place where the decision is no. Who pays is found by the resolvers in [`key`], what the
//! caller is told is written by the functions in [`response`]. This crate must not know where buckets live.

#![deny(missing_docs)]

mod admission;
mod body;
pub mod client;
mod future;
pub mod key;
mod layer;
mod plans;
mod refusal;
pub mod response;
mod rule;
mod service;
mod shared;
mod wall_clock;

pub use admission::Admission;
pub use body::ReplyBody;
pub use future::ResponseFuture;
pub use layer::{Builder, RateLimitLayer};
pub use plans::{PlanNames, PlanResolver, PlansBy, TenantPlan};
pub use refusal::{Cause, Refusal};
pub use rule::Rule;
pub use service::RateLimit;
pub use shared::Keyless;
pub use spile_limiter::Settled;
