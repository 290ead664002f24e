//! The service as its callers and operators see it: a real server on a port of its own, asked over HTTP.

mod admin;
mod bad_admin_input;
mod bad_input;
mod broken_store;
mod caddy;
mod command_line;
mod configuration;
mod decisions;
mod deployment;
mod example;
mod fleet;
mod forward_auth;
mod instances;
mod manners;
mod openapi;
mod operators;
mod persistence;
mod process;
mod proxies;
mod reloads;
mod resp;
mod sample_endpoint;
mod schemathesis;
mod shutdown;
mod straight;
mod support;
