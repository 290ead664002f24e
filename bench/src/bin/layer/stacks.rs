//! The stacks that are compared: one route that says `ok`, under limits that never refuse.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use spile_core::{Limit, Plan};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_tower::key::ClientIp;
use spile_tower::{RateLimitLayer, Rule};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// Every stack by name; the first is the one that the others are compared with.
pub(crate) const NAMES: [&str; 5] =
    ["bare axum", "spile", "spile, chain of 2", "tower_governor, no headers", "tower_governor, 3 headers"];

/// The stack of that name, as a server would hold it: `with_state` builds each route once, not once a request.
pub(crate) fn stack(name: &str) -> Router {
    layered(name).with_state(())
}

fn layered(name: &str) -> Router {
    let bare = Router::new().route("/", get(|| async { "ok" }));
    match name {
        "bare axum" => bare,
        "spile" => bare.layer(limited(Plan::new("free", Limit::per_second(1).burst(300_000_000)))),
        "spile, chain of 2" => {
            let limits = [
                ("burst", Limit::per_second(1).burst(300_000_000)),
                ("daily", Limit::per_second(1).burst(200_000_000)),
            ];
            bare.layer(limited(Plan::chain("free", limits)))
        }
        "tower_governor, no headers" => {
            let mut builder = GovernorConfigBuilder::default();
            let config = builder.per_nanosecond(1).burst_size(u32::MAX).finish().expect("a quota");
            bare.layer(GovernorLayer::new(Arc::new(config)))
        }
        "tower_governor, 3 headers" => {
            let mut builder = GovernorConfigBuilder::default();
            let config = builder.per_nanosecond(1).burst_size(u32::MAX).use_headers().finish();
            bare.layer(GovernorLayer::new(Arc::new(config.expect("a quota"))))
        }
        _ => panic!("no stack is called {name}"),
    }
}

fn limited(plan: Result<Plan, spile_core::PlanError>) -> RateLimitLayer<MemoryStore> {
    let plan = plan.expect("a plan");
    let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([plan]).build();
    RateLimitLayer::new(limiter, Rule::new(ClientIp::direct(), "free")).expect("the plan is there")
}
