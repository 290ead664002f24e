//! One question on its way to the store, and what the limiter learns from its answer.

use std::time::Duration;

use spile_core::{Charges, Operation, Reply, Store, StoreError, StoreExt};

use super::inner::LimiterInner;
use crate::deny_cache::SentQuestion;
use crate::lease::Leases;

/// A question on its way to the store. Every answer about a bucket corrects or removes what the deny cache has of it.
///
/// If it is dropped without an answer, the store may have run it, and the cached levels of its buckets are removed.
pub(super) struct StoreQuestion<'a, S> {
    limiter: &'a LimiterInner<S>,
    charges: &'a Charges<'a>,
    /// `None` if nothing is remembered of these buckets, or if the question has had its effect.
    sent: Option<SentQuestion>,
}

impl<S> LimiterInner<S> {
    /// To be called before the store is asked about these charges.
    pub(super) fn question<'a>(&'a self, charges: &'a Charges<'a>) -> StoreQuestion<'a, S> {
        let seen = self.deny_cache.as_ref().map(|cache| cache.changes_of(charges));
        let is_remembered = seen.is_some() || self.leases.is_some() && Leases::concern(charges);
        let sent = is_remembered
            .then(|| SentQuestion { at: self.fallback.clock.now(), changes: seen.unwrap_or_default() });
        StoreQuestion { limiter: self, charges, sent }
    }
}

impl<S: Store> LimiterInner<S> {
    /// Asks the store about these charges within a deadline, and learns from its answer about their buckets.
    pub(super) async fn ask(
        &self,
        operation: Operation<'_>,
        charges: &Charges<'_>,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        self.question(charges).ask(operation, charges, deadline).await
    }
}

impl<S: Store> StoreQuestion<'_, S> {
    /// Asks the store within a deadline, and learns from its answer. `charges` begin with those of the question.
    pub(super) async fn ask(
        self,
        operation: Operation<'_>,
        charges: &Charges<'_>,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        let answer = self.limiter.in_time(deadline, self.limiter.store.ask(operation, charges)).await;
        self.answered(operation, answer.as_ref());
        answer
    }

    /// Learns from the answer.
    pub(super) fn answered(mut self, operation: Operation<'_>, answer: Result<&Reply, &StoreError>) {
        let is_peek = matches!(operation, Operation::Peek);
        match answer {
            Ok(reply) => {
                let Some(sent) = self.sent.take() else { return };
                let heard = self.limiter.fallback.clock.now();
                if let Some(cache) = &self.limiter.deny_cache {
                    cache.learn(self.charges, reply, sent, heard, is_peek);
                }
                if let Some(leases) = &self.limiter.leases {
                    leases.learn(self.charges, reply, sent.at, heard);
                }
            }
            Err(why) if is_peek || !why.may_have_run() => self.sent = None,
            Err(_) => {}
        }
    }
}

impl<S> Drop for StoreQuestion<'_, S> {
    fn drop(&mut self) {
        if let Some(cache) = self.limiter.deny_cache.as_ref().filter(|_| self.sent.is_some()) {
            cache.forget(self.charges);
        }
    }
}
