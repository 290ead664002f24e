//! The `grpc` listener: Envoy's rate limit service, with health and reflection.
//!
//! A message becomes targets (who pays, under which rule) in [`target`], those become one chain in [`chain`], and the
//! decision becomes statuses in [`verdict`]. Nothing here knows how a bucket is counted.

mod chain;
mod health;
mod message;
mod reflection;
mod service;
mod target;
mod verdict;

pub(crate) use self::health::Health;
pub(crate) use self::service::Grpc;
