//! Settling: what a request cost in the end, in place of what it was charged at first.

use spile_core::{Decision, Reason, Source, Store, StoreError};
use spile_policy::{BucketCharge, Chain, ChainPart};

use super::RateLimiter;
use crate::ask::Ask;

/// What settling came to.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens that a bucket did not have any more. They stay unpaid: a bucket never goes below empty.
    pub uncovered: u64,
    /// True if it had been settled before: this time nothing was charged and nothing given back.
    pub already: bool,
    /// How the limits of the chain stand now, scaled as they were for the decision that is settled. `None` if they stand
    /// as they did, or the store did not say.
    pub decision: Option<Decision>,
}

impl<S: Store> RateLimiter<S> {
    /// Makes what this decision charged by the chain cost `tokens` in the end, for every bucket.
    ///
    /// Less than that is given back, in one call of the store. More is taken as far as it is there, for the work is
    /// already done, in one call for each key that pays.
    pub async fn settle(
        &self,
        chain: &Chain,
        decision: &Decision,
        tokens: u64,
    ) -> Result<Settled, StoreError> {
        let costs_more = chain.buckets().iter().any(|bucket| tokens > bucket.cost());
        if costs_more {
            return self.settle_by_parts(chain, decision, tokens).await;
        }
        let mut settled = Settled::default();
        if is_taken(decision) && chain.buckets().iter().any(|bucket| tokens < bucket.cost()) {
            let left = self.refund_charges(chain.charges_at(|bucket| bucket.cost() - tokens)).await?;
            let standing = left.limits().iter().zip(decision.limits());
            settled.decision =
                Decision::standing(standing.map(|(status, asked)| status.under_limit_of(asked)));
        }
        Ok(settled)
    }

    async fn settle_by_parts(
        &self,
        chain: &Chain,
        decision: &Decision,
        tokens: u64,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        let (mut standing, mut is_known) = (decision.limits().to_vec(), true);
        for ChainPart { cost, chain: part, places } in chain.by_key_and_cost() {
            let after = if tokens > cost {
                let more = tokens - cost;
                let holds = part.buckets().iter().map(|bucket| bucket.limit().limit().capacity()).min();
                let most = more.min(holds.unwrap_or(0).into());
                let granted =
                    self.spend_up_to_charges(Ask::on_terms_of(&part, part.charges_at(|_| most))).await;
                settled.uncovered = settled.uncovered.max(more - u64::from(granted.tokens));
                granted.decision
            } else if is_taken(decision) && tokens < cost {
                self.refund_charges(part.charges_at(|bucket: &BucketCharge| bucket.cost() - tokens)).await?
            } else {
                continue;
            };
            is_known &= !after.degraded();
            for (&place, status) in places.iter().zip(after.limits()) {
                // A decision about another chain has fewer limits, and is not told of this one's.
                if let Some(own) = standing.get_mut(place) {
                    *own = status.under_limit_of(own);
                }
            }
        }
        settled.decision = Decision::standing(standing).filter(|_| is_known);
        Ok(settled)
    }
}

/// True if the store charged. After a decision by failure policy or in shadow mode, a refund would create tokens.
pub fn is_taken(decision: &Decision) -> bool {
    decision.reason() == Reason::Ok && decision.source() != Source::Local
}
