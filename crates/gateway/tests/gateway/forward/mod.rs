//! Requests and answers on their way through.

mod http2;
mod proxying;
mod retries;
mod smuggling;
mod streaming;
mod upgrades;
