//! The `grpc` listener: Envoy's rate limit service, with health and reflection.
//!
//! A message becomes descriptors in [`descriptors`], the policy says what they owe, and the decision becomes statuses in
//! [`verdict`]. Nothing here knows how a bucket is counted.

mod descriptors;
mod health;
mod message;
mod reading;
mod service;
mod verdict;

pub(crate) use self::health::GrpcHealth;
pub(crate) use self::service::Grpc;
