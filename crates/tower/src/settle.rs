//! Settling up once the real cost is known: tokens of a language model, bytes, rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use spile_core::{Cost, Decision, Reason, Source, Store};
use spile_limiter::{LimiterError, RateLimiter, StoreFailed};

use crate::account::Account;
use crate::due::{Due, charges};

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
        self.till.settle(tokens, self.taken).await
    }

    /// Spends `tokens` more under every limit, or none: the decision says which.
    pub async fn charge(&self, tokens: u64) -> Result<Decision, LimiterError> {
        self.till.charge(tokens).await
    }

    /// Gives `tokens` back under every limit, never above a capacity. Where the request was let in without the
    /// store, there is nothing to give back.
    pub async fn refund(&self, tokens: u64) -> Result<(), StoreFailed> {
        if self.taken { self.till.refund(tokens).await } else { Ok(()) }
    }

    pub(crate) fn new<S: Store + 'static>(account: Arc<Account<S>>, decision: &Decision) -> Self {
        let taken = decision.reason() == Reason::Ok && decision.source() != Source::Local;
        Self { till: account, taken }
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").field("taken", &self.taken).finish_non_exhaustive()
    }
}

type Settling<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The account behind a [`Settle`], whatever its store: a handler should not have to name that.
trait Till: Send + Sync {
    fn settle(&self, tokens: u64, taken: bool) -> Settling<'_, Result<Settled, StoreFailed>>;
    fn charge(&self, tokens: u64) -> Settling<'_, Result<Decision, LimiterError>>;
    fn refund(&self, tokens: u64) -> Settling<'_, Result<(), StoreFailed>>;
}

impl<S: Store> Till for Account<S> {
    fn settle(&self, tokens: u64, taken: bool) -> Settling<'_, Result<Settled, StoreFailed>> {
        Box::pin(async move {
            let mut settled = Settled::default();
            for due in &self.dues.list {
                let uncovered = settle_one(&self.shared.limiter, due, tokens, taken).await?;
                settled.uncovered = settled.uncovered.max(uncovered);
            }
            Ok(settled)
        })
    }

    fn charge(&self, tokens: u64) -> Settling<'_, Result<Decision, LimiterError>> {
        Box::pin(async move {
            let cost = Cost::new(tokens)?;
            let ask = self.shared.ask(charges(&self.dues, |_| cost)?, &self.dues);
            Ok(self.shared.limiter.decide(ask).await)
        })
    }

    fn refund(&self, tokens: u64) -> Settling<'_, Result<(), StoreFailed>> {
        Box::pin(async move {
            let cost = Cost::new(tokens).map_err(LimiterError::from)?;
            let _ = self.shared.limiter.give_back(charges(&self.dues, |_| cost)?).await?;
            Ok(())
        })
    }
}

/// Settles what one rule charged; the tokens that could not be had.
async fn settle_one<S: Store>(
    limiter: &RateLimiter<S>,
    due: &Due,
    tokens: u64,
    taken: bool,
) -> Result<u64, StoreFailed> {
    let (key, charged) = (due.key.as_str(), u64::from(due.cost.get()));
    let plans = due.plans();
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
