//! The state that all clones of a limiter share, and the course of one decision.

use std::cell::Ref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use spile_core::{
    Answer, Charge, Charges, Cost, Decision, DecisionSource, Key, Micros, NamedLimit, Operation, Outcome,
    PlanRegistry, Reply, Spent, Store, StoreError,
};
use spile_runtime::Runtime;

use super::background::BackgroundWork;
use super::fallback::Fallback;
use super::leasing::LeaseShare;
use crate::ask::{AskOptions, AskedCharges};
use crate::deny_cache::DenyCache;
use crate::lease::{LeaseQuestion, Leases, Portion};
use crate::observer::{DecisionCounts, Observed, Observer};
use crate::permit::PermitKeeper;

/// The shortest pause between two tries of a caller that waits.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The state that all clones of a limiter share.
pub(crate) struct LimiterInner<S> {
    pub(crate) store: S,
    /// Provides time for deadlines, tasks and random numbers.
    pub(crate) runtime: Runtime,
    pub(crate) plans: Arc<dyn PlanRegistry>,
    pub(crate) deadline: Duration,
    pub(crate) fallback: Fallback,
    /// `None` if the store is not shared, or is always to be asked.
    pub(crate) deny_cache: Option<DenyCache>,
    /// `None` if the store is not shared.
    pub(crate) leases: Option<Leases>,
    /// Starts a task. A pointer, because only the builder knows that the store lives as long as a task may.
    pub(crate) start_work: fn(&Arc<Self>, BackgroundWork),
    /// Buckets whose notes in the deny cache are to be renewed.
    pub(crate) renewals: Mutex<Vec<Portion>>,
    /// The permits that this process holds.
    pub(crate) permits: PermitKeeper,
    pub(crate) observer: Option<Box<dyn Observer>>,
    /// Where the limiter counts on behalf of the observer. `None` if the observer hears of every decision.
    pub(crate) counts: Option<Arc<DecisionCounts>>,
}

impl<S: Store> LimiterInner<S> {
    /// Decides with a store that has to be waited for. The future is boxed: inlined into its callers, it would make the
    /// future of every decision larger to move, also of those that need not wait.
    #[cold]
    pub(super) fn wait_for<'a>(
        self: &'a Arc<Self>,
        ask: AskedCharges<'a>,
        share: Option<Box<LeaseShare<'a, S>>>,
    ) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            if self.leases.as_ref().is_some_and(Leases::has_orphans) {
                (self.start_work)(self, BackgroundWork::KeepOrphans);
            }
            let (mut ask, mut share) = (ask, share);
            if let Some(portion) = share.as_mut().and_then(|share| share.portion.take()) {
                let (deadline, started) = (ask.options.deadline(self.deadline), self.runtime.now());
                let is_late = self.runtime.timeout(deadline, portion).await.is_err();
                let asked = LeaseQuestion::AfterPortion;
                match self.decide_locally(&ask.charges, &ask.options, asked, is_late) {
                    Ok(decision) => return decision,
                    Err(other) => share = other,
                }
                ask = ask.within(deadline.saturating_sub(self.runtime.now() - started));
            }
            let rest = share.as_ref().and_then(|share| share.rest());
            let asked = rest.as_ref().unwrap_or(&ask.charges);
            let ask_store = async || {
                let answer = self.ask(Operation::Spend, asked, ask.options.deadline(self.deadline)).await;
                answer.map(Reply::into_outcome)
            };
            let mut answer = ask_store().await;
            if !ask.options.patience.is_zero() {
                let give_up = self.runtime.after(ask.options.patience);
                while matches!(answer, Err(StoreError::Overloaded(_))) && self.runtime.now() < give_up {
                    self.runtime.sleep(SHORTEST_PAUSE).await;
                    answer = ask_store().await;
                }
            }
            // The nodes of a remote store have different clocks, so samples are spaced by the clock of this machine.
            let heard_at = self.fallback.clock.now();
            if let Some(share) = share {
                if answer.as_ref().is_ok_and(|rest| rest.allowed) {
                    share.take_portions(heard_at);
                }
                answer = answer.map(|rest| share.outcome(&rest, heard_at));
            }
            self.conclude(&ask.charges, &ask.options, answer, DecisionSource::Store, Some(heard_at))
        })
    }

    /// The decision of a store that needs no waiting.
    #[expect(clippy::inline_always, reason = "as `conclude`")]
    #[inline(always)]
    pub(super) fn spend_at_once(&self, charges: &Charges<'_>, options: &AskOptions<'_>) -> Option<Decision> {
        if self.store.is_shared() {
            return None;
        }
        match self.store.call(Operation::Spend, charges) {
            Answer::Now(reply) => {
                let answer = reply.map(Reply::into_outcome);
                Some(self.conclude(charges, options, answer, DecisionSource::Store, None))
            }
            // Not polled, so that nothing is spent.
            Answer::Later(_) => None,
        }
    }

    /// Decides from leases or the deny cache, without asking the store, or by the failure policy if a portion is too late. The error
    /// is the share of leases in the question to the store.
    #[inline(never)]
    pub(super) fn decide_locally<'a>(
        self: &'a Arc<Self>,
        charges: &Charges<'a>,
        options: &AskOptions<'_>,
        asked: LeaseQuestion,
        is_late: bool,
    ) -> Result<Decision, Option<Box<LeaseShare<'a, S>>>> {
        if self.deny_cache.is_none() && self.leases.is_none() {
            return Err(None);
        }
        let now = self.fallback.clock.now();
        let share = match self.spend_leases(charges, options, asked, now) {
            Some(Ok(decision)) => return Ok(decision),
            Some(Err(share)) => Some(Box::new(share)),
            None => None,
        };
        if share.as_ref().is_some_and(|share| share.portion.is_some()) {
            return Err(share);
        }
        if is_late {
            let late = Err(StoreError::TimedOut(options.deadline(self.deadline)));
            return Ok(self.conclude_cold(charges, options, late, DecisionSource::Store, Some(now)));
        }
        let rest = share.as_ref().and_then(|share| share.rest());
        let Some(denial) = self.cached_denial(rest.as_ref().unwrap_or(charges), now) else {
            return Err(share);
        };
        let denial = match share {
            Some(share) => share.outcome(&denial, now),
            None => denial,
        };
        Ok(self.conclude(charges, options, Ok(denial), DecisionSource::DenyCache, Some(now)))
    }

    /// The denial that the store would return, if a recent one still holds.
    #[inline]
    pub(super) fn cached_denial(self: &Arc<Self>, charges: &Charges<'_>, now: Micros) -> Option<Outcome> {
        let cache = self.deny_cache.as_ref()?;
        let denial = cache.deny(charges, now, |charge: &Charge<'_>| self.renew(charge))?;
        if let Some(leases) = self.leases.as_ref().filter(|_| Leases::concern(charges)) {
            leases.promise(charges, denial.at, &denial.buckets, now);
        }
        Some(denial)
    }

    /// Turns the store's answer into a decision and reports it. `heard_at` is `None` if the store answered without waiting:
    /// then its time is the time of this machine, and the clock need not be read again.
    #[expect(
        clippy::inline_always,
        reason = "the decision is then made in the caller's memory and never moved"
    )]
    #[inline(always)]
    pub(super) fn conclude(
        &self,
        charges: &Charges<'_>,
        options: &AskOptions<'_>,
        answer: Result<Outcome, StoreError>,
        source: DecisionSource,
        heard_at: Option<Micros>,
    ) -> Decision {
        let outcome = match answer {
            Ok(outcome) if !options.shadow => outcome,
            answer => return self.conclude_cold(charges, options, answer, source, heard_at),
        };
        let decision = Decision::from_outcome(charges, &outcome, source);
        self.count_or_notify(charges, options, &decision, heard_at.unwrap_or(outcome.at));
        decision
    }

    /// Handles store failures and shadow mode.
    #[cold]
    fn conclude_cold(
        &self,
        charges: &Charges<'_>,
        options: &AskOptions<'_>,
        answer: Result<Outcome, StoreError>,
        source: DecisionSource,
        heard_at: Option<Micros>,
    ) -> Decision {
        let mut decision = match answer {
            Ok(outcome) => Decision::from_outcome(charges, &outcome, source),
            Err(why) => self.fallback.decide(Operation::Spend, charges, options.policy(&self.fallback), &why),
        };
        if options.shadow {
            decision = decision.shadowed();
        }
        self.notify(charges, options, &decision, heard_at.unwrap_or(decision.at()));
        decision
    }
}

/// A charge under a plan of one limit, and what the store answered without waiting.
pub(super) struct SpentOne<'k, 'p> {
    pub(super) key: Key<'k>,
    pub(super) limit: Ref<'p, NamedLimit>,
    pub(super) cost: Cost,
    pub(super) spent: Spent,
}

impl SpentOne<'_, '_> {
    #[inline]
    fn decision(&self) -> Decision {
        Decision::from_spent(self.limit.clone(), self.cost, self.spent, DecisionSource::Store)
    }
}

impl<S> LimiterInner<S> {
    /// Turns the store's answer about one charge into a decision and reports it.
    #[expect(clippy::inline_always, reason = "as `conclude`")]
    #[inline(always)]
    pub(super) fn conclude_one(&self, one: &SpentOne<'_, '_>) -> Decision {
        if self.observer.is_some() {
            self.report_one(one);
        }
        one.decision()
    }

    /// Makes the decision once more. With a reference to the one that is returned, that one would have to be moved.
    #[inline(never)]
    fn report_one(&self, one: &SpentOne<'_, '_>) {
        let decision = &one.decision();
        let charges = Charges::from(Charge::late(one.key, one.limit.clone(), one.cost));
        self.count_or_notify(&charges, &AskOptions::default(), decision, one.spent.at);
    }

    /// Counts a decision on behalf of the observer, or calls the observer if it wants to see this one.
    #[inline]
    fn count_or_notify(
        &self,
        charges: &Charges<'_>,
        options: &AskOptions<'_>,
        decision: &Decision,
        heard_at: Micros,
    ) {
        if let Some(counts) = &self.counts
            && options.tenant.is_none()
            && counts.add_plain(options.rule, decision, heard_at)
        {
            return;
        }
        self.notify(charges, options, decision, heard_at);
    }

    /// Reports to the observer. Charges are passed separately because a `Decision` does not own its keys.
    #[inline]
    pub(super) fn notify(
        &self,
        charges: &Charges<'_>,
        options: &AskOptions<'_>,
        decision: &Decision,
        heard_at: Micros,
    ) {
        if let Some(observer) = &self.observer {
            let (rule, tenant) = (options.rule, options.tenant);
            observer.decided(&Observed { rule, tenant, charges, decision, heard_at });
        }
    }

    /// Runs a call of the store within a deadline. A call that is ready at once starts no timer, and so needs no runtime.
    pub(crate) async fn in_time<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.runtime.timeout(deadline, call).await.unwrap_or(Err(StoreError::TimedOut(deadline)))
    }
}
