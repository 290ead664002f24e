//! Upstreams: addresses, connections and health.

mod addresses;
mod answers;
mod health;
mod http2;
mod nginx;
mod tls;
