//! What a handler finds of the decision that let its request in, and the means to settle up once the real cost is
//! known: tokens of a language model, bytes, rows.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::Extensions;
use spile_core::{Decision, Store};
use spile_limiter::{Ask, LimiterError, Settled, StoreFailed, is_taken};
use spile_policy::Chain;

use super::state::Shared;

/// A request that was let in: the [`Decision`], and what can still be charged or given back for it.
///
/// The layer puts it into the request's extensions. Clones settle the same account, once. Where several layers let the
/// request in, the handler finds the admission of the innermost, which leads to those [outside](Self::outer) of it.
///
/// ```
/// use spile_tower::Admission;
///
/// async fn complete(admission: Admission) -> Result<u64, Box<dyn std::error::Error>> {
///     let tokens_used = 1_250; // Known only now.
///     let settled = admission.settle(tokens_used).await?;
///     assert_eq!(settled.uncovered, 0, "the caller had less left than was used");
///     Ok(admission.decision().remaining())
/// }
/// ```
pub struct Admission {
    decision: Decision,
    chain: Chain,
    layer: Arc<dyn Settle>,
    settled: Once,
    outer: Option<Box<Self>>,
}

impl Admission {
    /// The decision that let the request in.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The admission by the next layer outside of this one, if there is one.
    pub fn outer(&self) -> Option<&Self> {
        self.outer.as_deref()
    }

    /// Makes the request cost `tokens` in the end, whatever it was charged at first, in this layer and in all outside of
    /// it.
    ///
    /// Less than that is given back. More is taken as far as it is there, for the work is already done.
    ///
    /// Each layer is settled once. A second call, also on a clone, changes nothing and says so
    /// ([`Settled::already`]); so does one after a failure, for the store may have done its work.
    pub async fn settle(&self, tokens: u64) -> Result<Settled, StoreFailed> {
        let mut result = self.settle_this(tokens).await;
        let mut next = self.outer();
        while let Some(outer) = next {
            let settled = outer.settle_this(tokens).await;
            result = result.and_then(|sum| Ok(joined(sum, &settled?)));
            next = outer.outer();
        }
        result
    }

    /// Spends `tokens` more under every limit of this layer, or none: the decision says which.
    pub async fn charge(&self, tokens: u64) -> Result<Decision, LimiterError> {
        self.layer.charge(self, tokens).await
    }

    /// Gives `tokens` back under every limit of this layer, never above a capacity. Where the request was let in without
    /// the store, there is nothing to give back.
    pub async fn refund(&self, tokens: u64) -> Result<(), StoreFailed> {
        if is_taken(&self.decision) { self.layer.refund(self, tokens).await } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn new<S: Store + 'static>(decision: Decision, chain: Chain, layer: Arc<Shared<S>>) -> Self {
        Self { decision, chain, layer, settled: Once::default(), outer: None }
    }

    /// Leaves this admission to the handler. That of an outer layer is kept inside of it.
    #[inline]
    pub(crate) fn leave_in(self, extensions: &mut Extensions) {
        if let Some(outer) = extensions.insert(self)
            && let Some(this) = extensions.get_mut::<Self>()
        {
            this.outer = Some(Box::new(outer));
        }
    }

    async fn settle_this(&self, tokens: u64) -> Result<Settled, StoreFailed> {
        if self.settled.is_first() {
            self.layer.settle(self, tokens).await
        } else {
            let mut settled = Settled::default();
            settled.already = true;
            Ok(settled)
        }
    }
}

/// What two layers came to together. How limits stand is told of the inner one.
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
            outer: self.outer.clone(),
        }
    }
}

/// What happens once, clones included. Most requests are neither cloned nor settled, so what clones share is made when it
/// is first needed.
#[derive(Default)]
struct Once(OnceLock<Arc<AtomicBool>>);

impl Once {
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

/// The layer that an [`Admission`] came through, whatever its store: a handler should not have to name that.
trait Settle: Send + Sync {
    fn settle<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Settled, StoreFailed>>;
    fn charge<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Decision, LimiterError>>;
    fn refund<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<(), StoreFailed>>;
}

impl<S: Store> Settle for Shared<S> {
    fn settle<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Settled, StoreFailed>> {
        Box::pin(async move { Ok(self.limiter.settle(&to.chain, &to.decision, tokens).await?) })
    }

    fn charge<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Decision, LimiterError>> {
        Box::pin(async move {
            let ask = Ask::on_terms_of(&to.chain, to.chain.priced(tokens)?);
            Ok(self.limiter.allow_charges(ask).await)
        })
    }

    fn refund<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<(), StoreFailed>> {
        Box::pin(async move {
            let _left = self.limiter.refund_charges(to.chain.charges_at(|_| tokens)).await?;
            Ok(())
        })
    }
}
