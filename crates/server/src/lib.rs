//! The service: what answers `spile serve`.
//!
//! Requests come in over HTTP, become questions to the limiter, and its decisions go out as JSON, status codes
//! and header fields. Everything that is typed by somebody (flags, bodies) is parsed here at the edge; the crates
//! below see only types that cannot be wrong. This crate must not know how a bucket is counted.

mod admin;
mod banner;
pub mod cli;
mod clock;
mod config;
mod decider;
mod fault;
mod health;
mod http;
mod identity;
mod listen;
mod metrics;
mod policies;
mod question;
mod rule;
mod serve;
mod server;
mod signals;
mod store;
mod typed;

pub use banner::Banner;
pub use config::{Config, Listen, StoreConfig, StoreUrl, TimeOf, UnknownStore};
pub use listen::{BindError, Listeners};
pub use server::Server;
pub use signals::termination;
