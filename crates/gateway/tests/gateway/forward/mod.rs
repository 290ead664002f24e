//! Forwarding: header fields, bodies, retries and upgrades.

mod http2;
mod proxying;
mod retries;
mod smuggling;
mod streaming;
mod upgrades;
