//! The `grpc` listener: Envoy's rate limit service, with health and reflection.
//!
//! A message becomes descriptors in [`descriptors`], the policy says what they owe, [`charged`] is what became of it, and
//! decisions become statuses in [`verdict`]. Nothing here knows how a bucket is counted.

mod charged;
mod descriptors;
mod health;
mod message;
mod reading;
mod service;
mod verdict;

pub(crate) use self::health::GrpcHealth;
pub(crate) use self::service::Grpc;
