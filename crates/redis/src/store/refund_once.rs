//! Refunds with an id. In a cluster a script sees one slot, so each key of a chain has a marker of its own.
//!
//! Each key's refund is one step with its marker. If a later one fails, the same id gives on another try what is missing,
//! and nothing twice.

use spile_core::{Bucket, Charges, Few, Outcome, RefundId, RefundOutcome, StoreError};

use crate::script::request::ScriptOp;
use crate::store::{RedisStore, outcome};

impl RedisStore {
    /// One step over a marker and the charges behind it.
    pub(crate) async fn refund_marked(&self, marked: &Charges<'_>) -> Result<RefundOutcome, StoreError> {
        let mut reply = self.step(ScriptOp::RefundOnce, marked).await?;
        let given = reply.granted > 0;
        reply.buckets = reply.buckets.iter().skip(1).copied().collect();
        Ok(RefundOutcome { given, outcome: Outcome { allowed: true, ..outcome(reply) } })
    }

    /// Says that it was given if any key got something now.
    pub(crate) async fn refund_each_key_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        let mut refunds: Vec<(&str, RefundOutcome)> = Vec::new();
        for charge in charges.iter() {
            let key = charge.key();
            if refunds.iter().all(|(known, _)| *known != key.as_str()) {
                let own = charges.iter().filter(|charge| charge.key() == key).cloned();
                // Some of a chain's charges are on buckets of their own and not too many, as all of them are.
                let Ok(own) = Charges::distinct(own) else { continue };
                refunds.push((key.as_str(), self.refund_marked(&id.mark(&own)).await?));
            }
        }
        let given = refunds.iter().any(|(_, refund)| refund.given);
        let at = refunds.iter().map(|(_, refund)| refund.outcome.at).max().unwrap_or_default();
        let mut buckets: Few<Bucket> = Few::new();
        let mut next: Vec<_> = refunds
            .iter()
            .map(|(key, refund)| (*key, refund.outcome.at, refund.outcome.buckets.iter()))
            .collect();
        for charge in charges.iter() {
            let own = next.iter_mut().find(|(key, ..)| *key == charge.key().as_str());
            if let Some((bucket, seen_at)) = own.and_then(|(_, at, buckets)| Some((buckets.next()?, *at))) {
                // As its own node saw it: another node's clock must not fill it.
                buckets.push(Bucket::new(bucket.available(charge.limit().limit(), seen_at), at));
            }
        }
        Ok(RefundOutcome { given, outcome: Outcome { allowed: true, at, buckets } })
    }
}
