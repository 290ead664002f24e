//! What a handler finds of the decision that let its request in, and the means to settle up once the real cost is
//! known: tokens of a language model, bytes, rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use spile_core::{Decision, Store};
use spile_limiter::{Ask, LimiterError, Settled, StoreFailed, is_taken};
use spile_policy::Chain;

use crate::shared::Shared;

/// A request that was let in: the [`Decision`], and what can still be charged or given back for it.
///
/// The layer puts it into the request's extensions. Clones settle the same account.
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
#[derive(Clone)]
pub struct Admission {
    decision: Decision,
    chain: Chain,
    layer: Arc<dyn Settle>,
}

impl Admission {
    /// The decision that let the request in.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Makes the request cost `tokens` in the end, whatever it was charged at first.
    ///
    /// Less than that is given back. More is taken as far as it is there, for the work is already done.
    pub async fn settle(&self, tokens: u64) -> Result<Settled, StoreFailed> {
        self.layer.settle(self, tokens).await
    }

    /// Spends `tokens` more under every limit, or none: the decision says which.
    pub async fn charge(&self, tokens: u64) -> Result<Decision, LimiterError> {
        self.layer.charge(self, tokens).await
    }

    /// Gives `tokens` back under every limit, never above a capacity. Where the request was let in without the
    /// store, there is nothing to give back.
    pub async fn refund(&self, tokens: u64) -> Result<(), StoreFailed> {
        if is_taken(&self.decision) { self.layer.refund(self, tokens).await } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn new<S: Store + 'static>(decision: Decision, chain: Chain, layer: Arc<Shared<S>>) -> Self {
        Self { decision, chain, layer }
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
            Ok(self.limiter.decide(ask).await)
        })
    }

    fn refund<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<(), StoreFailed>> {
        Box::pin(async move {
            let _left = self.limiter.give_back(to.chain.charges_at(|_| tokens)).await?;
            Ok(())
        })
    }
}
