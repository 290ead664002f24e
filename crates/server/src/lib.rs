//! The service: what answers `spile serve`.
//!
//! Requests come in over HTTP, become questions to the limiter, and its decisions go out as JSON, status codes
//! and header fields. Everything that is typed by somebody (flags, bodies) is parsed here at the edge; the crates
//! below see only types that cannot be wrong. This crate must not know how a bucket is counted.

mod admin;
mod admin_api;
mod banner;
mod bill;
mod buckets;
pub mod cli;
mod clock;
mod config;
mod control;
mod decider;
mod descriptor;
mod document;
mod fault;
mod gateway;
mod grpc;
mod health;
mod hex;
mod hooks;
mod house;
mod http;
mod identity;
mod kept;
mod key_list;
mod listen;
mod log;
mod matcher;
mod metrics;
mod minutes;
mod openapi;
mod policies;
mod question;
mod registry;
mod resp;
mod rule;
mod secret;
mod segment;
mod serve;
mod server;
mod signals;
mod store;
mod tenant;
mod typed;
mod watcher;

pub use config::{
    AdminConfig, Bounds, Clients, Config, ConfigError, Flags, GatewayConfig, GrpcConfig, JwtConfig, Listen,
    LoadError, RespConfig, Route, STARTER, StoreConfig, StoreUrl, TimeOf, TlsConfig, UnknownStore,
    Unreadable,
};
pub use listen::{BindError, Listeners};
pub use server::Server;
