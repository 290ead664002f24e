//! Settling: what a request cost in the end, in place of what it was charged at first.

use spile_core::{Decision, Reason, Source, Store, StoreError};
use spile_policy::{Chain, Line};

use crate::limiter::RateLimiter;

/// What settling came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens that a bucket did not have any more. They stay unpaid: a bucket never goes below empty.
    pub uncovered: u64,
}

impl<S: Store> RateLimiter<S> {
    /// Makes what this decision charged by the chain cost `tokens` in the end, for every bucket.
    ///
    /// Less than that is given back. More is taken as far as it is there, for the work is already done.
    pub async fn settle(
        &self,
        chain: &Chain,
        decision: &Decision,
        tokens: u64,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        for (charged, account) in chain.accounts() {
            if tokens > charged {
                let more = tokens - charged;
                let holds = account.lines().iter().map(|line| line.limit().limit().capacity()).min();
                let most = more.min(holds.unwrap_or(0).into());
                let granted = self.grant(account.charges_at(|_| most)).await;
                settled.uncovered = settled.uncovered.max(more - u64::from(granted.tokens));
            } else if is_taken(decision) && tokens < charged {
                let _left = self.give_back(account.charges_at(|line: &Line| line.cost() - tokens)).await?;
            }
        }
        Ok(settled)
    }
}

/// Whether the store holds what was charged. Where a policy decided or the rule only watched, giving anything back would
/// hand out tokens that nobody paid.
pub fn is_taken(decision: &Decision) -> bool {
    decision.reason() == Reason::Ok && decision.source() != Source::Local
}
