//! Settling: replaces what a request was charged at first by what it cost in the end.

use spile_core::{Amount, Decision, LimitName, Store, StoreError};
use spile_policy::{BucketCharge, Chain};

use super::RateLimiter;
use crate::ask::AskedCharges;

/// The result of settling.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// The amount beyond the debt of a limit. It stays unpaid.
    pub uncovered: Amount,
    /// True if it had been settled before: then nothing was charged or given back this time.
    pub already: bool,
    /// The amounts at which a reservation was settled, now or before. Empty for other charges.
    pub costs: Vec<(LimitName, Amount)>,
    /// The limits of the chain now, scaled as they were for the decision that is settled. `None` if they have not changed,
    /// or the store did not answer.
    pub decision: Option<Decision>,
}

impl Settled {
    /// Nothing was charged, so that there is nothing to settle.
    pub fn nothing() -> Self {
        Self { already: true, ..Self::default() }
    }
}

impl<S: Store> RateLimiter<S> {
    /// Makes the request that this decision charged cost `tokens` in the end, in every bucket of the chain whose cost is not
    /// fixed.
    ///
    /// If it cost less, the difference is returned. If it cost more, the difference is taken whether or not it is there,
    /// because the work is already done: a bucket then owes up to the [debt](spile_core::Limit::debt) of its limit.
    ///
    /// Tokens of an earlier window of a quota are not returned to a later one.
    pub async fn settle(
        &self,
        chain: &Chain,
        decision: &Decision,
        tokens: impl Into<Amount> + Send,
    ) -> Result<Settled, StoreError> {
        let tokens = tokens.into();
        self.settle_each(chain, decision, |_| tokens).await
    }

    /// Settles as [`settle`](Self::settle) does, at a cost for each bucket. A cost that is fixed does not change.
    pub async fn settle_each(
        &self,
        chain: &Chain,
        decision: &Decision,
        tokens: impl Fn(&BucketCharge) -> Amount + Send + Sync,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        let mut left = None;
        let cost = |bucket: &BucketCharge| bucket.cost_at(tokens(bucket));
        let more = |bucket: &BucketCharge| cost(bucket).above(bucket.cost());
        let less = |bucket: &BucketCharge| bucket.cost().above(cost(bucket));
        if chain.buckets().iter().any(|bucket| more(bucket) > Amount::ZERO) {
            let charged = self.charge_late(AskedCharges::of(chain, chain.late_charges(more))).await?;
            settled.uncovered = charged.uncovered;
            left = Some(charged.decision);
        }
        if let Some(spent) = decision.charged_at()
            && chain.buckets().iter().any(|bucket| less(bucket) > Amount::ZERO)
        {
            left = Some(self.refund_charges(chain.charges_at(less), Some(spent)).await?);
        }
        settled.decision = left.and_then(|left| {
            let standing = left.limits().iter().zip(decision.limits());
            Decision::standing(standing.map(|(status, asked)| status.under_limit_of(asked)))
        });
        Ok(settled)
    }
}
