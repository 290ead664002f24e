//! Rate limits: asks the limiter about what a request owes, and tells the client the decision.

use std::future::ready;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, join_all};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use parking_lot::Mutex;
use spile_core::{Amount, Clock, Decision, Micros, Reason, Store, StoreError};
use spile_limiter::{Acquired, Ask, Permit, RateLimiter, Settled};
use spile_observe::trace::{self, SpanKind, Tracer};
use spile_policy::{BucketCharge, Chain, Owed};
use spile_tower::response::{HeaderFields, is_grpc};
use tokio::time::Instant;

use crate::forward::headers::RequestId;

const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

/// The limiter, and the header fields that tell clients of its decisions.
pub(crate) struct RateLimits<S> {
    pub(crate) limiter: RateLimiter<S>,
    pub(crate) fields: HeaderFields,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tracer: Option<Tracer>,
}

/// The decision about a request, and what was charged. Always boxed, to keep futures small.
#[derive(Clone)]
pub(crate) struct RateDecision {
    decision: Decision,
    chain: Chain,
    now: Micros,
    /// `None` if no limit is a concurrency. Clones share it.
    permits: Option<RequestPermits>,
    /// The decisions of rules in shadow mode, which are settled with this one.
    shadow: Vec<Self>,
}

/// What a request costs in the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AnswerPrice {
    /// This amount.
    Exactly(Amount),
    /// This amount, or the amount charged before if that is more.
    AtLeast(Amount),
    /// The cost that each rule sets.
    Rules,
}

impl AnswerPrice {
    /// The cost in one bucket.
    fn in_bucket(self, bucket: &BucketCharge) -> Amount {
        match self {
            Self::Exactly(tokens) => tokens,
            Self::AtLeast(tokens) => tokens.max(bucket.cost()),
            Self::Rules => bucket.rule_cost(),
        }
    }
}

/// The permits of a request, until its response takes them.
///
/// They end with this if the request is refused, if it panics or if it ends before there is a response. After that, they end with
/// the body or the tunnel that took them.
type RequestPermits = Arc<Mutex<Vec<Permit>>>;

impl<S: Store + 'static> RateLimits<S> {
    /// Charges the request what it owes. `None` if no limit applies. Permits are held in the name of its `id`, by which operators
    /// find it in the access log.
    ///
    /// Not an `async fn`, whose future would keep what is owed: most stores answer at once, and the futures of the others are boxed.
    pub(crate) fn allow<'r>(
        &'r self,
        owed: Owed,
        id: &'r RequestId,
    ) -> impl Future<Output = Option<Box<RateDecision>>> + Send + 'r {
        let Owed { enforced, shadow, .. } = owed;
        if !shadow.is_empty() || self.tracer.is_some() {
            return Either::Right(self.allow_each(enforced, shadow, id).boxed());
        }
        let Some(chain) = enforced else { return Either::Left(ready(None)) };
        if !self.limiter.store().is_shared()
            && chain.first_permit().is_none()
            && let Some(decision) = self.limiter.try_allow_charges(&Ask::from(&chain))
        {
            return Either::Left(ready(Some(self.decision(decision, None, chain))));
        }
        Either::Right(async move { Some(self.allow_chain(chain, None, id).await) }.boxed())
    }

    /// Tells the client of the decision in header fields.
    pub(crate) fn write_headers(&self, decision: &RateDecision, headers: &mut HeaderMap) {
        self.fields.write(&decision.decision, decision.now, headers);
    }

    /// The response to a denied request. `Retry-After` is always sent; what the limits are only if `shown`.
    pub(crate) fn refusal(&self, decision: &RateDecision, shown: bool, request: &Parts) -> Response<Bytes> {
        let fields = if shown { self.fields } else { self.fields.x_ratelimit(false).ietf(false) };
        let mut response = if is_grpc(&request.headers) {
            fields.grpc_refusal(&decision.decision, decision.now)
        } else {
            fields.refusal(&decision.decision, decision.now)
        };
        if !shown {
            response.headers_mut().remove(DEGRADED);
        }
        response
    }

    /// Settles the request at this price, whatever it was charged before. A rule in shadow mode that cannot be settled is no
    /// failure.
    pub(crate) async fn settle(
        &self,
        decision: &mut RateDecision,
        price: AnswerPrice,
    ) -> Result<(), StoreError> {
        let RateDecision { chain, decision: charged, .. } = &*decision;
        let settled = self.limiter.settle_each(chain, charged, |bucket| price.in_bucket(bucket)).await;
        for RateDecision { chain, decision: charged, .. } in &decision.shadow {
            let _ignored = self.limiter.settle_each(chain, charged, |bucket| price.in_bucket(bucket)).await;
        }
        let settled = settled?;
        if let (Reason::Ok, Settled { decision: Some(settled), .. }) = (decision.decision.reason(), settled) {
            decision.decision = settled;
        }
        Ok(())
    }

    /// Asks about a chain, with no more time for the store than `within`.
    async fn allow_chain(&self, chain: Chain, within: Option<Duration>, id: &RequestId) -> Box<RateDecision> {
        if self.tracer.is_none() {
            return self.ask_limiter(chain, within, id).await;
        }
        let noted = async {
            let decided = self.ask_limiter(chain, within, id).await;
            trace::note("spile.reason", || decided.reason());
            trace::note("spile.limit", || decided.limit().to_owned());
            decided
        };
        Box::pin(trace::span("decision", SpanKind::Internal, noted)).await
    }

    async fn ask_limiter(&self, chain: Chain, within: Option<Duration>, id: &RequestId) -> Box<RateDecision> {
        let ask = Ask::from(&chain);
        let ask = if let Some(within) = within { ask.within(within) } else { ask };
        if chain.first_permit().is_none() {
            let decision = self.limiter.allow_charges(ask).await;
            return self.decision(decision, None, chain);
        }
        // Boxed, so that the futures of requests that take no permit stay small.
        let Acquired { decision, permit, .. } = Box::pin(self.limiter.acquire_as(ask, id.as_holder())).await;
        self.decision(decision, permit, chain)
    }

    /// Charges the enforced chain and, if that allows the request, each shadow one by itself, in the remaining time. The
    /// decision has the permits of all of them.
    async fn allow_each(
        &self,
        enforced: Option<Chain>,
        shadow: Vec<Chain>,
        id: &RequestId,
    ) -> Option<Box<RateDecision>> {
        let ends_at = Instant::now() + self.limiter.deadline();
        let enforced = match enforced {
            Some(chain) => Some(self.allow_chain(chain, None, id).await),
            None => None,
        };
        if enforced.as_ref().is_some_and(|decided| !decided.allowed()) {
            return enforced;
        }
        let left = ends_at.duration_since(Instant::now());
        let mut shadow =
            join_all(shadow.into_iter().map(|chain| self.allow_chain(chain, Some(left), id))).await;
        let permits: Vec<_> =
            enforced.iter().chain(&shadow).flat_map(|decided| decided.take_permits()).collect();
        let mut decided = enforced.or_else(|| shadow.pop())?;
        decided.permits = shared(permits);
        decided.shadow = shadow.into_iter().map(|watched| *watched).collect();
        Some(decided)
    }

    fn decision(&self, decision: Decision, permit: Option<Permit>, chain: Chain) -> Box<RateDecision> {
        let permits = shared(Vec::from_iter(permit));
        Box::new(RateDecision { decision, chain, now: self.clock.wall(), permits, shadow: Vec::new() })
    }
}

/// The permits of a request. `None` if there are none.
fn shared(permits: Vec<Permit>) -> Option<RequestPermits> {
    (!permits.is_empty()).then(|| Arc::new(Mutex::new(permits)))
}

impl RateDecision {
    pub(crate) fn rule(&self) -> Option<&str> {
        self.chain.rule()
    }

    /// The name of the limit that binds.
    pub(crate) fn limit(&self) -> &str {
        self.decision.binding().name().as_str()
    }

    pub(crate) const fn reason(&self) -> &'static str {
        self.decision.reason().as_str()
    }

    pub(crate) const fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// Takes the permits, for the response to hold them.
    pub(crate) fn take_permits(&self) -> Vec<Permit> {
        self.permits.as_ref().map(|permits| mem::take(&mut *permits.lock())).unwrap_or_default()
    }
}
