//! Rate limits: asks the limiter about what a request owes, and reports the decision to the client.

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use parking_lot::Mutex;
use spile_core::{Amount, Clock, Decision, Micros, Reason, Store, StoreError};
use spile_limiter::{Ask, EnforcedDecision, Permit, RateLimiter, Ruling, ShadowDecision};
use spile_observe::trace::{self, SpanKind, Tracer};
use spile_policy::{BucketCharge, Enforced, Owed};
use spile_tower::response::{HeaderFields, is_grpc};

use crate::forward::headers::RequestId;

const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

/// The limiter, and the header fields that report its decisions to clients.
pub(crate) struct RateLimits<S> {
    pub(crate) limiter: RateLimiter<S>,
    pub(crate) fields: HeaderFields,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tracer: Option<Tracer>,
}

/// The decision about a request, and its charges. Always boxed, to keep futures small.
#[derive(Clone)]
pub(crate) struct RateDecision {
    owed: Owed,
    enforced: EnforcedDecision,
    /// The decisions of rules in shadow mode, which are settled with this one.
    shadow: Vec<ShadowDecision>,
    now: Micros,
    /// `None` if no limit is a concurrency. Clones share it.
    permit: Option<RequestPermit>,
}

/// The final cost of a request.
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

/// The permit of a request, until its response takes it.
///
/// It ends with this if the request is refused, if it panics or if it ends before there is a response. After that, it ends with
/// the body or the tunnel that took it.
type RequestPermit = Arc<Mutex<Option<Box<Permit>>>>;

impl<S: Store + 'static> RateLimits<S> {
    /// Decides what the request owes. `None` if no limit applies. A permit is held in the name of its `id`, by which operators
    /// find it in the access log.
    ///
    /// Not an `async fn`, whose future would keep what is owed: most stores answer at once, and the futures of the others are boxed.
    pub(crate) fn allow<'r>(
        &'r self,
        owed: Owed,
        id: &'r RequestId,
    ) -> impl Future<Output = Option<Box<RateDecision>>> + Send + 'r {
        let waits = self.tracer.is_some() || self.limiter.store().is_shared();
        if (!waits || owed.is_empty())
            && let Some(ruling) = self.limiter.decide_now(&Ask::from(&owed))
        {
            return Either::Left(ready(self.decision(ruling, owed)));
        }
        Either::Right(self.decide(owed, id).boxed())
    }

    /// Writes the header fields of the decision. A request that no limit applies to has none.
    pub(crate) fn write_headers(&self, decision: &RateDecision, headers: &mut HeaderMap) {
        if let Some(decided) = decision.enforced.decision() {
            self.fields.write(decided, decision.now, headers);
        }
    }

    /// The response to a denied request. `Retry-After` is always sent; the limits only if `shown`.
    pub(crate) fn refusal(
        &self,
        (denied, now): (&Decision, Micros),
        shown: bool,
        request: &Parts,
    ) -> Response<Bytes> {
        let fields = if shown { self.fields } else { self.fields.x_ratelimit(false).ietf(false) };
        let mut response = if is_grpc(&request.headers) {
            fields.grpc_refusal(denied, now)
        } else {
            fields.refusal(denied, now)
        };
        if !shown {
            response.headers_mut().remove(DEGRADED);
        }
        response
    }

    /// Settles the request at this price, which replaces the earlier charge.
    pub(crate) async fn settle(
        &self,
        decision: &mut RateDecision,
        price: AnswerPrice,
    ) -> Result<(), StoreError> {
        let RateDecision { owed, enforced, shadow, .. } = decision;
        let price = |bucket: &BucketCharge| price.in_bucket(bucket);
        let settled = self.limiter.settle_owed(owed, enforced, shadow, price).await?;
        if let (EnforcedDecision::Decided(decided), Some(settled)) = (enforced, settled.decision)
            && decided.reason() == Reason::Ok
        {
            *decided = settled;
        }
        Ok(())
    }

    async fn decide(&self, owed: Owed, id: &RequestId) -> Option<Box<RateDecision>> {
        let deciding = self.limiter.decide(Ask::from(&owed).holder(id.as_holder()));
        if self.tracer.is_none() {
            let ruling = deciding.await;
            return self.decision(ruling, owed);
        }
        let noted = deciding.inspect(|ruling| {
            trace::note("spile.reason", || ruling.reason());
            if let Some(decision) = ruling.enforced.decision() {
                trace::note("spile.limit", || decision.binding().name().to_string());
            }
        });
        let ruling = Box::pin(trace::span("decision", SpanKind::Internal, noted)).await;
        self.decision(ruling, owed)
    }

    fn decision(&self, ruling: Ruling, owed: Owed) -> Option<Box<RateDecision>> {
        let Ruling { enforced, shadow, permit, .. } = ruling;
        if matches!(enforced, EnforcedDecision::Unlimited) && shadow.is_empty() {
            return None;
        }
        let permit = permit.map(|permit| Arc::new(Mutex::new(Some(permit))));
        Some(Box::new(RateDecision { owed, enforced, shadow, now: self.clock.wall(), permit }))
    }
}

impl RateDecision {
    pub(crate) fn rule(&self) -> Option<&str> {
        match &self.owed.enforced {
            Enforced::Charged(chain) => chain.rule(),
            Enforced::Unlimited { rule, .. } => rule.as_deref(),
        }
    }

    /// The name of the limit that binds.
    pub(crate) fn limit(&self) -> Option<&str> {
        self.enforced.decision().map(|decision| decision.binding().name().as_str())
    }

    pub(crate) const fn reason(&self) -> &'static str {
        self.enforced.reason()
    }

    /// The decision and its time, if the request is denied.
    pub(crate) fn denied(&self) -> Option<(&Decision, Micros)> {
        self.enforced.decision().filter(|decision| !decision.allowed()).map(|denied| (denied, self.now))
    }

    /// Takes the permit, for the response to hold it.
    pub(crate) fn take_permit(&self) -> Option<Box<Permit>> {
        self.permit.as_ref().and_then(|permit| permit.lock().take())
    }
}
