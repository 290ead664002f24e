//! Refunds with an id. In a cluster a script reaches one slot, so each key of a chain has its own marker.
//!
//! The refund of a key and its marker are one atomic step. If a later key fails, a retry with the same id refunds the
//! missing keys, and no key twice.

use spile_core::{Bucket, Charges, OneOrMany, Outcome, RefundId, RefundOutcome, StoreError};

use crate::script::request::ScriptOp;
use crate::store::{RedisStore, outcome};

impl RedisStore {
    /// Refunds charges that are preceded by their marker.
    pub(crate) async fn refund_marked(&self, marked: &Charges<'_>) -> Result<RefundOutcome, StoreError> {
        let mut reply = self.step(ScriptOp::RefundOnce, marked).await?;
        let given = reply.granted > 0;
        reply.buckets = reply.buckets.iter().skip(1).copied().collect();
        Ok(RefundOutcome { given, outcome: Outcome { allowed: true, ..outcome(reply) } })
    }

    /// Refunds each key by itself. `given` if any key was refunded now.
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
                // Cannot fail: a subset of a valid chain is valid.
                let Ok(own) = Charges::distinct(own) else { continue };
                refunds.push((key.as_str(), self.refund_marked(&id.mark(&own)).await?));
            }
        }
        let given = refunds.iter().any(|(_, refund)| refund.given);
        let at = refunds.iter().map(|(_, refund)| refund.outcome.at).max().unwrap_or_default();
        let mut buckets: OneOrMany<Bucket> = OneOrMany::new();
        let mut next: Vec<_> = refunds
            .iter()
            .map(|(key, refund)| (*key, refund.outcome.at, refund.outcome.buckets.iter()))
            .collect();
        for charge in charges.iter() {
            let own = next.iter_mut().find(|(key, ..)| *key == charge.key().as_str());
            if let Some((bucket, seen_at)) = own.and_then(|(_, at, buckets)| Some((buckets.next()?, *at))) {
                // As its own node saw it: another node's clock must not refill it.
                let limit = charge.limit().limit();
                buckets.push(Bucket::holding(limit, bucket.available(limit, seen_at), at));
            }
        }
        Ok(RefundOutcome { given, outcome: Outcome { allowed: true, at, buckets } })
    }
}
