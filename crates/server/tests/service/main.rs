//! The service as its callers and operators see it: a real server on a port of its own, asked over HTTP. The folders are
//! those of `src`; `doors` asks the same of every door and `listeners` of every
//! listener; `guide` follows the README and the guide.

mod admin;
mod auth;
mod cli;
mod config;
mod decide;
mod doors;
mod gateway;
mod grpc;
mod guide;
mod http;
mod listeners;
mod registry;
mod replay;
mod resp;
mod serve;
mod support;
