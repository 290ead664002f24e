//! Settling: replaces what a request was charged at first by what it cost in the end.

use spile_core::{Decision, DecisionSource, Reason, Store, StoreError};
use spile_policy::{BucketCharge, Chain};

use super::RateLimiter;
use crate::ask::Ask;

/// What settling did.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// Tokens beyond the debt of a limit. They stay unpaid.
    pub uncovered: u64,
    /// True if it had been settled before: then nothing was charged or given back this time.
    pub already: bool,
    /// The limits of the chain now, scaled as they were for the decision that is settled. `None` if they have not changed,
    /// or the store did not answer.
    pub decision: Option<Decision>,
}

impl<S: Store> RateLimiter<S> {
    /// Makes the request that this decision charged cost `tokens` in the end, in every bucket of the chain whose cost is not
    /// fixed.
    ///
    /// If it cost less, the difference is given back. If it cost more, the difference is taken whether or not it is there,
    /// because the work is already done: a bucket then owes up to the [debt](spile_core::Limit::debt) of its limit.
    pub async fn settle(
        &self,
        chain: &Chain,
        decision: &Decision,
        tokens: u64,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        let mut left = None;
        let more = |bucket: &BucketCharge| bucket.cost_at(tokens).saturating_sub(bucket.cost());
        let less = |bucket: &BucketCharge| bucket.cost().saturating_sub(bucket.cost_at(tokens));
        if chain.buckets().iter().any(|bucket| more(bucket) > 0) {
            let charged = self.charge_late(Ask::for_chain(chain, chain.late_charges(more))).await?;
            settled.uncovered = charged.uncovered;
            left = Some(charged.decision);
        }
        if is_taken(decision) && chain.buckets().iter().any(|bucket| less(bucket) > 0) {
            left = Some(self.refund_charges(chain.charges_at(less)).await?);
        }
        settled.decision = left.and_then(|left| {
            let standing = left.limits().iter().zip(decision.limits());
            Decision::standing(standing.map(|(status, asked)| status.under_limit_of(asked)))
        });
        Ok(settled)
    }
}

/// True if the store charged. After a decision by failure policy or in shadow mode, a refund would create tokens.
pub fn is_taken(decision: &Decision) -> bool {
    decision.reason() == Reason::Ok && decision.source() != DecisionSource::Local
}
