//! Settling: replaces what a request was charged at first by what it cost in the end.

use spile_core::{Decision, DecisionSource, Reason, Store, StoreError};
use spile_policy::{BucketCharge, Chain, CostGroup};

use super::RateLimiter;
use crate::ask::Ask;

/// What settling did.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens that a bucket no longer had. They stay unpaid, because a bucket never goes below empty.
    pub uncovered: u64,
    /// True if it had been settled before: then nothing was charged or given back this time.
    pub already: bool,
    /// The limits of the chain now, scaled as they were for the decision that is settled. `None` if they have not changed,
    /// or the store did not answer.
    pub decision: Option<Decision>,
}

impl<S: Store> RateLimiter<S> {
    /// Makes the request that this decision charged cost `tokens` in the end, in every bucket of the chain.
    ///
    /// If it cost less, the difference is given back in one call of the store. If it cost more, the difference is taken as far
    /// as the buckets have it, because the work is already done; that is one call for each key.
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
        for CostGroup { cost, chain: part, places } in chain.by_key_and_cost() {
            let after = if tokens > cost {
                let more = tokens - cost;
                let holds = part.buckets().iter().map(|bucket| bucket.limit().limit().capacity()).min();
                let most = more.min(holds.unwrap_or(0).into());
                let granted =
                    self.spend_up_to_charges(Ask::for_chain(&part, part.charges_at(|_| most))).await;
                settled.uncovered = settled.uncovered.max(more - u64::from(granted.tokens));
                granted.decision
            } else if is_taken(decision) && tokens < cost {
                self.refund_charges(part.charges_at(|bucket: &BucketCharge| bucket.cost() - tokens)).await?
            } else {
                continue;
            };
            is_known &= !after.degraded();
            for (&place, status) in places.iter().zip(after.limits()) {
                // A decision about another chain may have fewer limits.
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
    decision.reason() == Reason::Ok && decision.source() != DecisionSource::Local
}
