//! Envoy's rate limit service as Envoy sees it: a real gRPC client over TCP.

mod bounds;
mod budgets;
pub(crate) mod client;
mod decisions;
mod envoy;
mod failures;
mod operations;
mod overrides;
mod python;
mod real_envoy;

use std::path::Path;

use client::{Client, Request};
use spile_server::Config;

use crate::support::Spile;

/// Rules for the domain `edge`.
const RULES: &str = r#"
[listen]
grpc = "127.0.0.1:0"

[grpc]
timeout = "5s"                  # a test machine may be busy

[plans.ten]
capacity = 10
refill = "1/s"

[plans.three]
capacity = 3
refill = "3/min"

[plans.gold]
limits = [{ name = "burst", capacity = 5, refill = "1/s" }, { name = "daily", capacity = 100, refill = "100/day" }]

[[rules]]
id = "address"
match = { domain = "edge", entries = ["remote_address"] }
plans = ["ten"]

[[rules]]
id = "login"
match = { domain = "edge", entries = ["generic_key=login", "remote_address"] }
plans = ["three"]

[[rules]]
id = "api"
match = { domain = "edge", entries = ["path=/api/*"] }
plans = ["gold"]
cost = 2

[[rules]]
id = "office"
match = { domain = "edge", entries = ["remote_address=10.0.0.1"] }
plans = ["three"]
mode = "shadow"

[[rules]]
id = "customer"
match = { domain = "edge", entries = ["tenant"] }
plans = "tenant"
anonymous_plan = "three"
also = ["everybody"]

[[rules]]
id = "everybody"
match = { path = "/nothing-of-its-own" }
key = ["literal:everybody"]
plans = ["gold"]

[[tenants]]
id = "acme"
plan = "ten"
"#;

fn config(text: &str) -> Config {
    Config::parse(Path::new("spile.toml"), text.to_owned(), []).unwrap_or_else(|why| panic!("{why}"))
}

async fn start() -> Spile {
    Spile::start_with(config(RULES)).await
}

async fn client(spile: &Spile) -> Client {
    Client::connect(spile.grpc.expect("the listener is on")).await
}

/// A request about descriptors of the domain `edge`.
fn edge(descriptors: &[&[(&str, &str)]]) -> Request {
    Request::new("edge", descriptors)
}
