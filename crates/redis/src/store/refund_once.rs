//! Refunds with an id. In a cluster a script reaches one slot, so each key of a chain has its own marker.
//!
//! The refund of a key and its marker are one atomic step. If a later key fails, a retry with the same id refunds the
//! missing keys, and no key twice.

use spile_core::{Bucket, Charges, OneOrMany, RefundId, Reply, StoreError, Verdict};

use crate::script::request::ScriptOp;
use crate::store::RedisStore;

impl RedisStore {
    /// Refunds charges that are preceded by their marker.
    pub(crate) async fn refund_marked(&self, marked: &Charges<'_>) -> Result<Reply, StoreError> {
        let mut reply = self.step(ScriptOp::RefundOnce, marked).await?;
        reply.buckets = reply.buckets.into_iter().skip(1).collect();
        Ok(reply)
    }

    /// Refunds each key by itself. Done if any key was refunded now.
    pub(crate) async fn refund_each_key_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<Reply, StoreError> {
        let mut refunds: Vec<(&str, Reply)> = Vec::new();
        for charge in charges.iter() {
            let key = charge.key();
            if refunds.iter().all(|(known, _)| *known != key.as_str()) {
                let own = charges.iter().filter(|charge| charge.key() == key).cloned();
                // Cannot fail: a subset of a valid chain is valid.
                let Ok(own) = Charges::distinct(own) else { continue };
                refunds.push((key.as_str(), self.refund_marked(&id.mark(&own)).await?));
            }
        }
        let is_given = refunds.iter().any(|(_, refund)| refund.verdict == Verdict::Done);
        let verdict = if is_given { Verdict::Done } else { Verdict::Before };
        let at = refunds.iter().map(|(_, refund)| refund.at).max().unwrap_or_default();
        let mut buckets: OneOrMany<Bucket> = OneOrMany::new();
        let mut next: Vec<_> =
            refunds.iter().map(|(key, refund)| (*key, refund.at, refund.buckets.iter())).collect();
        for charge in charges.iter() {
            let own = next.iter_mut().find(|(key, ..)| *key == charge.key().as_str());
            if let Some((bucket, seen_at)) = own.and_then(|(_, at, buckets)| Some((buckets.next()?, *at))) {
                // As its own node saw it: another node's clock must not refill it.
                let limit = charge.limit().limit();
                buckets.push(Bucket::holding(limit, bucket.available(limit, seen_at), at));
            }
        }
        Ok(Reply::new(verdict, at, buckets))
    }
}
