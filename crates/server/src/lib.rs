//! The service behind `spile serve`.
//!
//! Each door (HTTP API, forward-auth, gateway, gRPC, RESP, command line) turns bytes into facts, asks the policy what is
//! owed, asks the limiter once, and renders the decision. Everything that comes from outside (flags, files, bodies) is parsed
//! here at the edge; the crates below see only types that cannot be wrong. This crate must not know how a bucket is
//! counted, nor make charges itself.

// These macros panic if the reader is gone or the disk is full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod admin;
mod auth;
pub mod cli;
mod config;
mod control;
mod decide;
mod gateway;
mod grpc;
mod http;
mod input;
mod observe;
mod openapi;
mod registry;
mod replay;
mod resp;
mod secret;
mod serve;

pub use config::{
    AdminConfig, Clients, Config, ConfigError, Flags, ForwardAuth, GatewayConfig, GrpcConfig, JwtConfig,
    Listen, LoadError, LogFormat, LogLevel, NotText, OpenAdmin, ProxyKind, RespConfig, RouteConfig, STARTER,
    StoreConfig, StoreUrl, TimeOf, TlsConfig, UnknownLogLevel, UnknownStore, Unreadable,
};
pub use secret::{mask, mask_typed};
pub use serve::{BindError, Listeners, Server};
