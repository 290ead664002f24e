//! The decision that let a request in, as its handler finds it, and the way to settle once the real cost is known: tokens
//! of a language model, bytes, rows.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use http::{Extensions, Response};
use http_body::Body;
use spile_core::{Amount, Decision, Store};
use spile_limiter::{AskedCharges, LimiterError, Permit, Settled, StoreCallError};
use spile_policy::Chain;

use super::state::LayerState;
use crate::cost::{CostMeter, CostSource, MeteredBody};

/// A request that was let in: the [`Decision`], and what can still be charged or given back for it.
///
/// The layer puts it into the extensions of the request. Clones are settled once together. If several layers let the request
/// in, the handler finds the admission of the innermost, which leads to the [outer](Self::outer) ones.
///
/// ```
/// # use spile_tower as spile;
/// use spile::Admission;
///
/// async fn complete(admission: Admission) -> Result<u64, Box<dyn std::error::Error>> {
///     let tokens_used = 1_250; // Known only now.
///     let settled = admission.settle(tokens_used).await?;
///     assert_eq!(settled.uncovered, 0, "the caller had less left than was used");
///     Ok(admission.decision().remaining().whole_tokens())
/// }
/// ```
pub struct Admission {
    decision: Decision,
    chain: Chain,
    layer: Arc<dyn Settle>,
    settled: SettleOnce,
    /// Belongs to the response. A handler that keeps the request does not keep the permit.
    permit: Weak<Permit>,
    outer: Option<Box<Self>>,
}

impl Admission {
    /// The decision that let the request in.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The permit of this layer, if a limit of the request is a concurrency. `None` once the response has ended.
    ///
    /// The layer holds it until the last byte of the response, its error or its drop. What goes on after that must hold the
    /// permit itself: the task of a WebSocket, whose response ends with its head, or work that is only started by the request.
    pub fn permit(&self) -> Option<Arc<Permit>> {
        self.permit.upgrade()
    }

    /// The admission of the next outer layer. `None` if there is no other layer.
    pub fn outer(&self) -> Option<&Self> {
        self.outer.as_deref()
    }

    /// Settles the request at `tokens`, in this layer and in all outer ones.
    ///
    /// If it cost less, the difference is given back. If it cost more, the difference is taken whether or not it is there,
    /// because the work is already done: a bucket then owes up to the [debt](spile_core::Limit::debt) of its limit.
    ///
    /// Each layer is settled once. A second call, also on a clone or after a failure, changes nothing and says so
    /// ([`Settled::already`]): after a failure, the store may have done its work.
    pub async fn settle(&self, tokens: impl Into<Amount> + Send) -> Result<Settled, StoreCallError> {
        let tokens = tokens.into();
        let mut result = self.settle_this(tokens).await;
        let mut next = self.outer();
        while let Some(outer) = next {
            let settled = outer.settle_this(tokens).await;
            result = result.and_then(|sum| Ok(joined(sum, &settled?)));
            next = outer.outer();
        }
        result
    }

    /// Makes the request cost what the response says, in this layer and in all outer ones. The body passes unchanged and
    /// without delay, and its cost is read meanwhile.
    ///
    /// The request is settled when the body ends. If it breaks off or is dropped before, because the client has hung up, more
    /// than was charged is taken, and nothing is given back. If the response does not report an amount, or if its body is
    /// compressed, what was charged stays.
    ///
    /// ```
    /// # use spile_tower as spile;
    /// use http::Response;
    /// use spile::Admission;
    /// use spile::cost::{CostSource, MeteredBody};
    ///
    /// async fn complete<B: http_body::Body>(admission: Admission, answer: Response<B>) -> Response<MeteredBody<B>> {
    ///     admission.settle_from(&CostSource::OpenAi, answer).await
    /// }
    /// ```
    pub async fn settle_from<B: Body>(
        &self,
        source: &CostSource,
        response: Response<B>,
    ) -> Response<MeteredBody<B>> {
        if let Some(tokens) = source.in_header(response.headers()) {
            // A failure of the store is ignored: the response is ready.
            let _settled = self.settle(tokens).await;
        }
        let meter = source.reader(response.headers()).map(|reader| {
            let admission = self.clone();
            CostMeter::new(Some(reader), move |usage| {
                Box::pin(async move {
                    if let Some(tokens) = usage.reported.settles_at(admission.charged()) {
                        let _settled = admission.settle(tokens).await;
                    }
                })
            })
        });
        response.map(|body| MeteredBody::new(body, meter))
    }

    /// Spends `tokens` more under every limit of this layer, or under none. The decision says which. A concurrency has its
    /// permit already, and is not asked.
    pub async fn charge(&self, tokens: impl Into<Amount> + Send) -> Result<Decision, LimiterError> {
        self.layer.charge(self, tokens.into()).await
    }

    /// Gives `tokens` back under every limit of this layer, never above a capacity. Gives nothing back if the request was let in
    /// without the store.
    pub async fn refund(&self, tokens: impl Into<Amount> + Send) -> Result<(), StoreCallError> {
        if self.decision.charged_at().is_some() {
            self.layer.refund(self, tokens.into()).await
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(crate) fn new<S: Store + 'static>(
        decision: Decision,
        chain: Chain,
        layer: Arc<LayerState<S>>,
        permit: Option<&Arc<Permit>>,
    ) -> Self {
        let permit = permit.map(Arc::downgrade).unwrap_or_default();
        Self { decision, chain, layer, settled: SettleOnce::default(), permit, outer: None }
    }

    /// Puts this admission into the extensions. An admission of an outer layer is kept inside of it.
    #[inline]
    pub(crate) fn leave_in(self, extensions: &mut Extensions) {
        if let Some(outer) = extensions.insert(self)
            && let Some(this) = extensions.get_mut::<Self>()
        {
            this.outer = Some(Box::new(outer));
        }
    }

    /// The highest cost that this layer or an outer one has charged.
    fn charged(&self) -> Amount {
        let outer = self.outer().map_or(Amount::ZERO, Self::charged);
        self.chain.highest_cost().max(outer)
    }

    async fn settle_this(&self, tokens: Amount) -> Result<Settled, StoreCallError> {
        if self.settled.is_first() {
            self.layer.settle(self, tokens).await
        } else {
            let mut settled = Settled::default();
            settled.already = true;
            Ok(settled)
        }
    }
}

/// The sum of what two layers did. The decision is that of the inner layer.
fn joined(mut sum: Settled, other: &Settled) -> Settled {
    sum.uncovered = sum.uncovered.max(other.uncovered);
    sum.already &= other.already;
    sum
}

impl Clone for Admission {
    fn clone(&self) -> Self {
        Self {
            decision: self.decision.clone(),
            chain: self.chain.clone(),
            layer: Arc::clone(&self.layer),
            settled: self.settled.shared(),
            permit: self.permit.clone(),
            outer: self.outer.clone(),
        }
    }
}

/// A flag that all clones of an admission share. Most requests are neither cloned nor settled, so it is allocated when it is
/// first needed.
#[derive(Default)]
struct SettleOnce(OnceLock<Arc<AtomicBool>>);

impl SettleOnce {
    /// True the first time.
    fn is_first(&self) -> bool {
        !self.done().swap(true, Ordering::AcqRel)
    }

    fn shared(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.done())))
    }

    fn done(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(Arc::default)
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("decision", &self.decision).finish_non_exhaustive()
    }
}

type Settling<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The layer of an [`Admission`], without the type of its store, so that handlers need not name that.
trait Settle: Send + Sync {
    fn settle<'a>(
        &'a self,
        to: &'a Admission,
        tokens: Amount,
    ) -> Settling<'a, Result<Settled, StoreCallError>>;
    fn charge<'a>(
        &'a self,
        to: &'a Admission,
        tokens: Amount,
    ) -> Settling<'a, Result<Decision, LimiterError>>;
    fn refund<'a>(&'a self, to: &'a Admission, tokens: Amount) -> Settling<'a, Result<(), StoreCallError>>;
}

impl<S: Store + 'static> Settle for LayerState<S> {
    fn settle<'a>(
        &'a self,
        to: &'a Admission,
        tokens: Amount,
    ) -> Settling<'a, Result<Settled, StoreCallError>> {
        Box::pin(async move { Ok(self.limiter.settle(&to.chain, &to.decision, tokens).await?) })
    }

    fn charge<'a>(
        &'a self,
        to: &'a Admission,
        tokens: Amount,
    ) -> Settling<'a, Result<Decision, LimiterError>> {
        Box::pin(async move {
            let charged = match to.chain.priced(tokens)?.only(false) {
                Some(charges) => {
                    self.limiter.decide(AskedCharges::of(&to.chain, charges)).await.into_decision()
                }
                None => None,
            };
            Ok(charged.unwrap_or_else(|| to.decision.clone()))
        })
    }

    fn refund<'a>(&'a self, to: &'a Admission, tokens: Amount) -> Settling<'a, Result<(), StoreCallError>> {
        Box::pin(async move {
            let _left = self
                .limiter
                .refund_charges(to.chain.charges_at(|_| tokens), to.decision.charged_at())
                .await?;
            Ok(())
        })
    }
}
