//! The Redis protocol as its clients see it: raw sockets, redis-cli and redis-py.

mod agreement;
mod bad_bytes;
pub(crate) mod client;
mod libraries;
mod manners;
mod operations;
mod password;
mod permits;
mod rules;
mod throttle;

use client::Client;
use spile_server::Config;

use crate::support::Spile;

/// The defaults, with the listener on a free port.
fn config() -> Config {
    let mut config = Config::default();
    config.listen.resp = Some(([127, 0, 0, 1], 0).into());
    config
}

async fn start() -> Spile {
    Spile::start_with(config()).await
}

async fn client(spile: &Spile) -> Client {
    Client::connect(spile.resp.expect("the listener is on")).await
}
