//! What the tests share: plans, requests and stores that fail or take their time.

#![allow(dead_code, reason = "each test file uses its own part of it")]

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use spile_core::{Limit, Plan};
use spile_limiter::{RateLimiter, TokioClock};
use spile_memory::MemoryStore;
use spile_testkit::store::{CallFault, FaultyStore};
use spile_tower::client::PeerAddr;

pub(crate) type Clocked = MemoryStore<TokioClock>;

/// Two at once, and one back each second.
pub(crate) fn small() -> Plan {
    Plan::new("small", Limit::per_second(1).burst(2)).unwrap()
}

/// A hundred at once, and ten back each second.
pub(crate) fn large() -> Plan {
    Plan::new("large", Limit::per_second(10).burst(100)).unwrap()
}

/// A limiter on the embedded store that tells the time by tokio.
pub(crate) fn limiter() -> RateLimiter<Clocked> {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    RateLimiter::builder().store(store).plans([small(), large()]).build()
}

/// A request of `user`, who also has an address.
pub(crate) fn from_user(user: &str) -> Request<()> {
    let mut request = Request::builder().header("x-user", user).body(()).unwrap();
    request.extensions_mut().insert(PeerAddr(SocketAddr::from(([203, 0, 113, 7], 80))));
    request
}

/// A store that takes its time for each call.
pub(crate) fn slow<S>(store: S, delay: Duration) -> FaultyStore<S> {
    FaultyStore::new(store, move |_| CallFault::Delay(delay))
}
