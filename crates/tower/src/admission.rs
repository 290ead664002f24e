//! What a handler finds of the decision that let its request in, and the means to settle up once the real cost is
//! known: tokens of a language model, bytes, rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use spile_core::{Charges, Cost, Decision, Reason, Source, Store};
use spile_limiter::{LimiterError, RateLimiter, StoreFailed};

use crate::owed::{Owed, Payer};
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
    owed: Owed,
    till: Arc<dyn Till>,
}

/// What settling came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens that a bucket did not have any more. They stay unpaid: a bucket never goes below empty.
    pub uncovered: u64,
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
        self.till.settle(self, tokens).await
    }

    /// Spends `tokens` more under every limit, or none: the decision says which.
    pub async fn charge(&self, tokens: u64) -> Result<Decision, LimiterError> {
        self.till.charge(self, tokens).await
    }

    /// Gives `tokens` back under every limit, never above a capacity. Where the request was let in without the
    /// store, there is nothing to give back.
    pub async fn refund(&self, tokens: u64) -> Result<(), StoreFailed> {
        if self.is_taken() { self.till.refund(self, tokens).await } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn new<S: Store + 'static>(decision: Decision, owed: Owed, till: Arc<Shared<S>>) -> Self {
        Self { decision, owed, till }
    }

    /// Whether the store holds what was charged. Where a policy decided or the rule only watched, giving anything
    /// back would hand out tokens that nobody paid.
    fn is_taken(&self) -> bool {
        self.decision.reason() == Reason::Ok && self.decision.source() != Source::Local
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("decision", &self.decision).finish_non_exhaustive()
    }
}

type Settling<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The layer that an [`Admission`] came through, whatever its store: a handler should not have to name that.
trait Till: Send + Sync {
    fn settle<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Settled, StoreFailed>>;
    fn charge<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Decision, LimiterError>>;
    fn refund<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<(), StoreFailed>>;
}

impl<S: Store> Till for Shared<S> {
    fn settle<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Settled, StoreFailed>> {
        Box::pin(async move {
            let mut settled = Settled::default();
            for (payer, plans) in to.owed.plans(&to.decision) {
                let uncovered = settle_one(&self.limiter, payer, plans, tokens, to.is_taken()).await?;
                settled.uncovered = settled.uncovered.max(uncovered);
            }
            Ok(settled)
        })
    }

    fn charge<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<Decision, LimiterError>> {
        Box::pin(async move {
            let ask = self.ask(charges(self, to, tokens)?, to.owed.tenant.as_deref());
            Ok(self.limiter.decide(ask).await)
        })
    }

    fn refund<'a>(&'a self, to: &'a Admission, tokens: u64) -> Settling<'a, Result<(), StoreFailed>> {
        Box::pin(async move {
            let _ = self.limiter.give_back(charges(self, to, tokens)?).await?;
            Ok(())
        })
    }
}

/// The same charges at another price.
fn charges<'a, S: Store>(
    till: &Shared<S>,
    to: &'a Admission,
    tokens: u64,
) -> Result<Charges<'a>, LimiterError> {
    let (mut chain, cost) = (None, Cost::new(tokens)?);
    for (payer, plans) in to.owed.plans(&to.decision) {
        till.limiter.charge_also(&mut chain, payer.key.as_key()?, plans, cost)?;
    }
    Ok(chain.map_or_else(|| Charges::new([]), Ok)?)
}

/// Settles what one rule charged; the tokens that could not be had.
async fn settle_one<S: Store>(
    limiter: &RateLimiter<S>,
    payer: &Payer,
    plans: Vec<&str>,
    tokens: u64,
    taken: bool,
) -> Result<u64, StoreFailed> {
    let (key, charged) = (payer.key.as_str(), u64::from(payer.cost.get()));
    if tokens > charged {
        let more = tokens - charged;
        let granted = limiter.spend_up_to(key, plans, more).await?;
        return Ok(more - u64::from(granted.tokens));
    }
    if taken && tokens < charged {
        let _ = limiter.refund(key, plans, charged - tokens).await?;
    }
    Ok(0)
}
