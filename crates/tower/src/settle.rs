//! Settling up once the real cost is known: tokens of a language model, bytes, rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use spile_core::{Cost, Decision, Reason, Source, Store};
use spile_limiter::{LimiterError, StoreFailed};

use crate::due::{Due, Dues, charges};
use crate::shared::Shared;

/// Charges or refunds the caller of a request after it was let in.
///
/// The layer puts it into the request's extensions beside the [`Decision`]. Clones settle the same account.
///
/// ```
/// use spile_tower::Settle;
///
/// async fn complete(settle: Settle) -> Result<(), Box<dyn std::error::Error>> {
///     let tokens_used = 1_250; // Known only now.
///     let settled = settle.at(tokens_used).await?;
///     assert_eq!(settled.uncovered, 0, "the caller had less left than was used");
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Settle {
    till: Arc<dyn Till>,
    dues: Dues,
    /// Whether the store holds what was charged. Where a policy decided or the rule only watched, giving
    /// anything back would hand out tokens that nobody paid.
    taken: bool,
}

/// What settling came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens that a bucket did not have any more. They stay unpaid: a bucket never goes below empty.
    pub uncovered: u64,
}

impl Settle {
    /// Makes the request cost `tokens` in the end, whatever it was charged at first.
    ///
    /// Less than that is given back. More is taken as far as it is there, for the work is already done.
    pub async fn at(&self, tokens: u64) -> Result<Settled, StoreFailed> {
        self.till.settle(self, tokens).await
    }

    /// Spends `tokens` more under every limit, or none: the decision says which.
    pub async fn charge(&self, tokens: u64) -> Result<Decision, LimiterError> {
        self.till.charge(self, tokens).await
    }

    /// Gives `tokens` back under every limit, never above a capacity. Where the request was let in without the
    /// store, there is nothing to give back.
    pub async fn refund(&self, tokens: u64) -> Result<(), StoreFailed> {
        self.till.refund(self, tokens).await
    }

    pub(crate) fn new<S: Store + 'static>(shared: Arc<Shared<S>>, dues: Dues, decision: &Decision) -> Self {
        let taken = decision.reason() == Reason::Ok && decision.source() != Source::Local;
        Self { till: shared, dues, taken }
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").field("taken", &self.taken).finish_non_exhaustive()
    }
}

type Settling<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The limiter behind a [`Settle`], whatever its store: a handler should not have to name that.
trait Till: Send + Sync {
    fn settle<'a>(&'a self, account: &'a Settle, tokens: u64) -> Settling<'a, Result<Settled, StoreFailed>>;
    fn charge<'a>(&'a self, account: &'a Settle, tokens: u64)
    -> Settling<'a, Result<Decision, LimiterError>>;
    fn refund<'a>(&'a self, account: &'a Settle, tokens: u64) -> Settling<'a, Result<(), StoreFailed>>;
}

impl<S: Store> Till for Shared<S> {
    fn settle<'a>(&'a self, account: &'a Settle, tokens: u64) -> Settling<'a, Result<Settled, StoreFailed>> {
        Box::pin(async move {
            let mut settled = Settled::default();
            for due in &account.dues.list {
                let uncovered = self.settle_one(due, tokens, account.taken).await?;
                settled.uncovered = settled.uncovered.max(uncovered);
            }
            Ok(settled)
        })
    }

    fn charge<'a>(
        &'a self,
        account: &'a Settle,
        tokens: u64,
    ) -> Settling<'a, Result<Decision, LimiterError>> {
        Box::pin(async move {
            let cost = Cost::new(tokens)?;
            let charges = charges(&account.dues, |_| cost)?;
            Ok(self.limiter.decide(self.ask(charges, &account.dues)).await)
        })
    }

    fn refund<'a>(&'a self, account: &'a Settle, tokens: u64) -> Settling<'a, Result<(), StoreFailed>> {
        Box::pin(async move {
            let cost = Cost::new(tokens).map_err(LimiterError::from)?;
            if account.taken {
                let _ = self.limiter.give_back(charges(&account.dues, |_| cost)?).await?;
            }
            Ok(())
        })
    }
}

impl<S: Store> Shared<S> {
    /// Settles what one rule charged; the tokens that could not be had.
    async fn settle_one(&self, due: &Due, tokens: u64, taken: bool) -> Result<u64, StoreFailed> {
        let (key, charged) = (due.key.as_str(), u64::from(due.cost.get()));
        let plans = due.plans.iter().map(|plan| plan.name().as_str());
        if tokens > charged {
            let more = tokens - charged;
            let granted = self.limiter.spend_up_to(key, plans, more).await?;
            return Ok(more - u64::from(granted.tokens));
        }
        if taken && tokens < charged {
            let _ = self.limiter.refund(key, plans, charged - tokens).await?;
        }
        Ok(0)
    }
}
