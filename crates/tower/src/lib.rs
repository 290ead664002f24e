//! Spile as tower middleware: a layer for axum, hyper, tonic and any other stack that uses [`http`].
//!
//! [`RateLimitLayer`] charges each request by its [`Rule`]s. If the decision is no, it answers in place of the service. The
//! resolvers in [`key`] find out who pays, and the functions in [`response`] render the decision for the caller. The cost of an answer
//! is read by [`cost`]. This crate must not know where buckets are stored.
//!
//! ```
//! # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; pub use spile_tower::*; }
//! use spile::key::ClientIp;
//! use spile::{Limit, MemoryStore, Plan, RateLimitLayer, RateLimiter, Rule};
//! use tower::{ServiceBuilder, service_fn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::builder()
//!     .store(MemoryStore::new())
//!     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
//!     .build();
//! let service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(limiter, Rule::new(ClientIp::direct(), "free"))?)
//!     .service(service_fn(async |_: http::Request<String>| Ok::<_, std::io::Error>(http::Response::new(String::new()))));
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

pub mod client;
pub mod cost;
pub mod key;
mod layer;
pub mod response;
mod rule;

pub use layer::{Admission, Keyless, RateLimit, RateLimitLayer, RateLimitLayerBuilder, ResponseFuture};
pub use response::{Cause, RefusedRequest, ReplyBody};
pub use rule::{PlanNames, PlanResolver, PlansBy, Rule, TenantPlan};
pub use spile_limiter::Settled;
