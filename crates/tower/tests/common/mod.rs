//! What the tests share: plans, requests and stores that fail or take their time.

#![allow(dead_code, reason = "each test file uses its own part of it")]

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use spile_core::{Charges, Limit, Outcome, PartialOutcome, Plan, RefundId, RefundOutcome, Store, StoreError};
use spile_limiter::{RateLimiter, TokioClock};
use spile_memory::MemoryStore;
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

/// A store that answers as another does, after a while.
pub(crate) struct Slow<S>(pub(crate) S, pub(crate) Duration);

impl<S: Store> Store for Slow<S> {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        tokio::time::sleep(self.1).await;
        self.0.spend(charges).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.0.peek(charges).await
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        self.0.spend_up_to(charges).await
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        tokio::time::sleep(self.1).await;
        self.0.refund(charges).await
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        self.0.refund_once(charges, id).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.0.reset(charges).await
    }
}

/// A store that never has an answer.
pub(crate) struct Broken;

impl Store for Broken {
    async fn spend(&self, _: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn peek(&self, _: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn spend_up_to(&self, _: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn refund(&self, _: &Charges<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn refund_once(&self, _: &Charges<'_>, _: RefundId<'_>) -> Result<RefundOutcome, StoreError> {
        Err(StoreError::BreakerOpen)
    }

    async fn reset(&self, _: &Charges<'_>) -> Result<(), StoreError> {
        Err(StoreError::BreakerOpen)
    }
}
