//! The `grpc` listener: Envoy's rate limit service, with health and reflection.
//!
//! [`descriptors`] converts a message, the policy returns what the descriptors owe, [`charged`] holds the decisions, and [`verdict`]
//! turns them into statuses. This module must not know how a bucket is counted.

mod charged;
mod descriptors;
mod health;
mod message;
mod reading;
mod service;
mod verdict;

pub(crate) use self::health::GrpcHealth;
pub(crate) use self::service::Grpc;
