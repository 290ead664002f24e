//! Settling: what a request cost in the end, in place of what it was charged at first.

use spile_core::{Decision, Reason, Source, Store, StoreError};
use spile_policy::{Chain, Line};

use crate::ask::Ask;
use crate::limiter::RateLimiter;

/// What settling came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens that a bucket did not have any more. They stay unpaid: a bucket never goes below empty.
    pub uncovered: u64,
    /// True if it had been settled before: this time nothing was charged and nothing given back.
    pub already: bool,
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
        for (charged, part) in chain.by_key_and_cost() {
            if tokens > charged {
                let more = tokens - charged;
                let holds = part.lines().iter().map(|line| line.limit().limit().capacity()).min();
                let most = more.min(holds.unwrap_or(0).into());
                let granted = self.grant(Ask::on_terms_of(&part, part.charges_at(|_| most))).await;
                settled.uncovered = settled.uncovered.max(more - u64::from(granted.tokens));
            } else if is_taken(decision) && tokens < charged {
                let _left = self.give_back(part.charges_at(|line: &Line| line.cost() - tokens)).await?;
            }
        }
        Ok(settled)
    }
}

/// True if the store charged. After a decision by failure policy or in shadow mode, a refund would create tokens.
pub fn is_taken(decision: &Decision) -> bool {
    decision.reason() == Reason::Ok && decision.source() != Source::Local
}
