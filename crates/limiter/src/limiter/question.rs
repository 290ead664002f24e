//! One question on its way to the store, and what the limiter learns from its answer.

use spile_core::{Charges, Micros, Outcome, StoreError};

use super::inner::LimiterInner;
use crate::deny_cache::{DenyCache, SentQuestion};
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

impl<S> StoreQuestion<'_, S> {
    /// Learns from the answer to a question that spends if it is allowed.
    pub(super) fn answered(mut self, answer: Result<&Outcome, &StoreError>) {
        match answer {
            Ok(outcome) if outcome.allowed => self.learn(outcome, forget),
            Ok(outcome) => self.learn(outcome, DenyCache::learn),
            Err(why) => self.failed(why),
        }
    }

    /// Learns from the answer to a call that changes buckets in any case: a late charge, a refund, settling.
    pub(super) fn changed(mut self, answer: Result<&Outcome, &StoreError>) {
        match answer {
            Ok(outcome) => self.learn(outcome, forget),
            Err(why) => self.failed(why),
        }
    }

    /// Learns from the answer to a peek, which changes nothing.
    pub(super) fn peeked(mut self, answer: Result<&Outcome, &StoreError>) {
        match answer {
            Ok(outcome) if outcome.allowed => self.learn(outcome, forget),
            Ok(outcome) => self.learn(outcome, DenyCache::renew),
            Err(_) => self.sent = None,
        }
    }

    fn failed(&mut self, why: &StoreError) {
        if !why.may_have_run() {
            self.sent = None;
        }
    }

    fn learn(&mut self, outcome: &Outcome, teach: Lesson) {
        let Some(sent) = self.sent.take() else { return };
        let heard = self.limiter.fallback.clock.now();
        if let Some(cache) = &self.limiter.deny_cache {
            teach(cache, self.charges, outcome, sent, heard);
        }
        if let Some(leases) = &self.limiter.leases {
            leases.learn(self.charges, outcome, sent.at, heard);
        }
    }
}

/// How an answer changes the deny cache.
type Lesson = fn(&DenyCache, &Charges<'_>, &Outcome, SentQuestion, Micros);

fn forget(cache: &DenyCache, charges: &Charges<'_>, _: &Outcome, _: SentQuestion, _: Micros) {
    cache.forget(charges);
}

impl<S> Drop for StoreQuestion<'_, S> {
    fn drop(&mut self) {
        if let Some(cache) = self.limiter.deny_cache.as_ref().filter(|_| self.sent.is_some()) {
            cache.forget(self.charges);
        }
    }
}
