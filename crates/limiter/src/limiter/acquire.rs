//! Acquires: spends a chain and takes a permit of each of its concurrencies, in one step.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Amount, Bucket, Charge, Charges, Decision, DecisionSource, FailurePolicy, Operation, Outcome, PermitId,
    PermitStep, Reply, Store, StoreError, StoreExt, Verdict,
};
use spile_policy::Chain;

use super::inner::LimiterInner;
use super::{PlanList, RateLimiter, Wait, is_refused};
use crate::ask::{AskOptions, AskedCharges};
use crate::error::{AcquireError, LimiterError};
use crate::permit::{HeldPlaces, Permit, PermitStats, PlacesIn, RELEASE, ReleaseWork, SOON, Unreleased};

/// How long permits are released when the process ends.
const RELEASE_TIME: Duration = Duration::from_secs(1);

impl<S: Store + 'static> RateLimiter<S> {
    /// Takes a permit of every concurrency of these plans, and a token of every other limit, or nothing.
    ///
    /// ```
    /// # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; }
    /// # use spile::{Limit, MemoryStore, Plan, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let plans = [Plan::new("exports", Limit::concurrent(1))?];
    /// let limiter = RateLimiter::builder().store(MemoryStore::new()).plans(plans).build();
    ///
    /// let permit = limiter.acquire("user:123", "exports").await?;
    /// assert!(limiter.acquire("user:123", "exports").await.is_err());
    /// drop(permit);
    /// assert!(limiter.acquire("user:123", "exports").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, key: &str, plans: impl PlanList + Send) -> Result<Permit, AcquireError> {
        let charges = self.permit_charges(key, plans)?;
        let (decision, permit) = self.decide_charges(charges.into()).await;
        permit.ok_or_else(|| AcquireError::Denied(Box::new(decision)))
    }

    /// Acquires as [`acquire`](Self::acquire) does, and waits for a free place. Of all callers in this process that wait
    /// for one key, the first asks the store, every 5 to 20 ms. Processes are not queued: a place goes to the one that asks first, and
    /// one that has just got a place waits before it asks for the next.
    ///
    /// It cannot be known when a permit is released, so the denial is returned only when the time is over, or at once while the store
    /// fails, unless the failure policy is `Local` or `wait` [fails open](Wait::fail_open).
    pub async fn acquire_when_ready(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        wait: Wait,
    ) -> Result<Permit, AcquireError> {
        let mut asked = AskedCharges::from(self.permit_charges(key, plans)?);
        asked.options.on_failure = Some(wait.policy(self.inner.fallback.policy));
        let charges = &asked.charges;
        let (runtime, permits) = (&self.inner.runtime, &self.inner.permits);
        let give_up = wait.at_most.and_then(|limit| runtime.now().checked_add(limit));
        let left = || give_up.map_or(Duration::MAX, |give_up| give_up - runtime.now());
        let turn = permits.turns.queue_for(charges);
        // If callers in front take all the time, it asks once: they may wait for other limits than it needs.
        let is_shared = self.inner.store.is_shared();
        let mut first = runtime.timeout(left(), turn.first(is_shared, runtime)).await;
        let mut has_waited = false;
        loop {
            // Made before the question, so that no release in between is missed.
            let released = permits.has_released.notified();
            let (decision, permit) = self.decide_charges(asked.clone()).await;
            if let Some(permit) = permit {
                if let Ok(waiting) = &mut first {
                    waiting.got_place(runtime);
                }
                return Ok(permit);
            }
            let (is_final, left) = (decision.may_have_run() || is_refused(&decision), left());
            let for_place = decision.binding().limit().is_concurrency();
            let is_too_late = left.is_zero() || !for_place && decision.retry_after() > left;
            let Some(waiting) = first.as_mut().ok().filter(|_| !is_final && !is_too_late) else {
                return Err(AcquireError::Denied(Box::new(decision)));
            };
            if !for_place {
                let pause = decision.retry_after().saturating_add(wait.drawn_jitter(runtime));
                runtime.sleep(pause.min(left)).await;
                continue;
            }
            if !std::mem::replace(&mut has_waited, true) {
                let limits = charges.iter().filter(|charge| charge.needs_permit());
                let limits = limits.map(|charge| charge.limit().name());
                permits.stats.count_limits(limits, |counts| counts.waited += 1);
            }
            let pause = turn.pause(waiting, runtime).min(left);
            if is_shared {
                runtime.sleep(pause).await;
            } else {
                // No other process waits for the place.
                let _released = runtime.timeout(pause, released).await;
            }
        }
    }

    /// Returns the permits of this process to the store, as far as it can be reached, and waits for those that are being
    /// released. To be called before the process ends. It takes a second at most.
    pub async fn release_permits(&self) {
        for places in self.inner.permits.all() {
            if places.ended.set(true) {
                // Notifies a holder that is still at work that others may have the place.
                places.lose();
                Arc::clone(&self.inner).release_later(places);
            }
        }
        let released = self.inner.permits.wait_for_releases(None);
        let _done = self.inner.runtime.timeout(RELEASE_TIME, released).await;
    }

    /// The charges of one key under these plans, one token each, which must have a concurrency.
    fn permit_charges<'k>(&self, key: &'k str, plans: impl PlanList) -> Result<Charges<'k>, LimiterError> {
        let charges = self.charges(key, &plans, 1)?;
        match charges.first_permit() {
            Some(_) => Ok(charges),
            None => Err(LimiterError::NoConcurrency(plans.to_names().join(", "))),
        }
    }
}

impl<S: Store> RateLimiter<S> {
    /// Keeps a permit for another hold time. False if it is not held any more.
    ///
    /// A permit that was taken while the store failed (`degraded`, as its decision says) gets its place in the store as soon as
    /// that answers and has one. Until then the failure policy of the chain keeps it as it took it.
    pub async fn renew_permit(
        &self,
        chain: &Chain,
        id: &PermitId,
        degraded: bool,
    ) -> Result<bool, StoreError> {
        let charges = chain.charges_at(|_| Amount::TOKEN);
        let Some(charges) = charges.only(true) else { return Ok(false) };
        let (inner, local) = (&self.inner, &self.inner.fallback);
        let step = async |step| {
            let answer = inner.in_time(inner.deadline, inner.store.permit(&charges, id, step)).await;
            answer.map(|outcome| outcome.allowed)
        };
        let sent = local.clock.now();
        let mut renewed = step(PermitStep::Renew).await;
        // The store may not know it yet. What was not renewed within its hold time is not taken again.
        let (hold, wall) = (charges.hold().unwrap_or_default(), local.clock.wall());
        let is_fresh = || wall < id.since() + hold && id.since() < wall + hold;
        if degraded && (inner.permits.lent.is_held(id, sent) || is_fresh()) {
            if matches!(renewed, Ok(false)) {
                renewed = step(PermitStep::Retake).await;
            }
            renewed = match renewed {
                // The store counts again: the place is there, or it has none for it.
                Ok(is_held) => {
                    local.permit(&charges, id, RELEASE);
                    Ok(is_held)
                }
                Err(why) => match AskOptions::of(chain).policy(local) {
                    FailurePolicy::Allow => Ok(true),
                    _ if local.permit(&charges, id, PermitStep::Renew) => Ok(true),
                    _ => Err(why),
                },
            };
        }
        match renewed {
            Ok(true) => inner.permits.lent.note(id, &charges, sent),
            Ok(false) => inner.permits.lent.forget(id),
            Err(_) => {}
        }
        renewed
    }

    /// Ends a permit. False if it was not held any more.
    pub async fn release_permit(&self, chain: &Chain, id: &PermitId) -> Result<bool, StoreError> {
        let charges = chain.charges_at(|_| Amount::TOKEN);
        let Some(charges) = charges.only(true) else { return Ok(false) };
        let inner = &self.inner;
        // It may have been taken while the store did not answer.
        let released_locally = inner.fallback.permit(&charges, id, RELEASE);
        let answer = inner.in_time(inner.deadline, inner.store.permit(&charges, id, RELEASE)).await;
        inner.permits.has_released.notify_waiters();
        let is_released = match answer {
            Err(_) if released_locally => true,
            answer => answer?.allowed || released_locally,
        };
        inner.permits.lent.forget(id);
        if is_released {
            let limits = charges.iter().map(|charge| charge.limit().name());
            inner.permits.stats.count_limits(limits, |counts| counts.released += 1);
        }
        Ok(is_released)
    }

    /// Counts of the permits of this process, by limit.
    pub fn permit_stats(&self) -> PermitStats {
        self.inner.permits.all_stats(self.inner.fallback.clock.now())
    }

    /// The keys that hold most of the permits that were taken through this process, and how many: up to `count` of them.
    pub fn holding_most(&self, count: usize) -> Vec<(String, u64)> {
        self.inner.permits.holding_most(count, self.inner.fallback.clock.now())
    }
}

impl<S: Store + 'static> LimiterInner<S> {
    /// Decides about a chain with a concurrency. If it is allowed, the places are held, and kept unless their caller does that.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        AskedCharges { charges, options }: &AskedCharges<'_>,
    ) -> (Decision, Option<Arc<HeldPlaces>>) {
        let now = self.fallback.clock.now();
        let rest = charges.only(false);
        if let Some(rest) = &rest
            && let Some(denial) = self.cached_denial(rest, now)
        {
            let decision = self.conclude(rest, options, Ok(denial), DecisionSource::DenyCache, Some(now));
            return (decision, None);
        }
        let (since, number) = (self.fallback.clock.wall(), self.runtime.random_id());
        let hold = charges.hold().unwrap_or_default();
        let id = |holder| PermitId::new(since, hold, number, holder);
        let id = id(options.holder).or_else(|_| id("")).expect("a permit without a holder has an id");
        let places = Arc::new(HeldPlaces::new(id, charges, now, self.runtime.spawner()));
        let mut unreleased = Unreleased { limiter: Arc::clone(self), places: Some(Arc::clone(&places)) };
        let question = rest.as_ref().map(|rest| self.question(rest));
        let deadline = options.deadline(self.deadline);
        let ends_at = self.runtime.after(deadline);
        let ask = async || {
            places.unanswered.set(true);
            let asked = self.store.permit(charges, &places.id, PermitStep::Acquire);
            let answer = self.runtime.timeout_at(ends_at, asked).await;
            let answer = answer.unwrap_or(Err(StoreError::TimedOut(deadline)));
            places.unanswered.set(answer.as_ref().is_err_and(StoreError::may_have_run));
            answer
        };
        let mut answer = ask().await;
        let mut may_have_run = false;
        // A caller that asks one request after the other must not overtake the release of its last one.
        if answer.as_ref().is_ok_and(|outcome| lacks_place(charges, outcome))
            && self.permits.is_releasing(Some(charges))
            && self.runtime.timeout_at(ends_at, self.permits.wait_for_releases(Some(charges))).await.is_ok()
        {
            match ask().await {
                Ok(again) => answer = Ok(again),
                // The first answer still holds. A place that is taken late is released; tokens beside it may be charged.
                Err(why) if why.may_have_run() => {
                    may_have_run = true;
                    Arc::clone(self).release_later(Arc::clone(&places));
                }
                Err(_) => {}
            }
        }
        let heard_at = self.fallback.clock.now();
        // A process that was suspended may hear of a permit that has ended meanwhile.
        if answer.as_ref().is_ok_and(|outcome| outcome.allowed) && !places.is_held(heard_at) {
            answer = Err(StoreError::TimedOut(deadline));
        }
        if let Some(question) = question {
            let rates = answer.as_ref().map(|outcome| part_of(charges, outcome));
            question.answered(Operation::Spend, rates.as_ref().map_err(|why| *why));
        }
        let (decision, is_taken) = match answer {
            Ok(outcome) => {
                let (is_taken, source) = (outcome.allowed, DecisionSource::Store);
                let decision = self.conclude(charges, options, Ok(outcome), source, Some(heard_at));
                (decision.with_may_have_run(may_have_run), is_taken)
            }
            Err(why) => {
                let policy = options.policy(&self.fallback);
                let acquire = Operation::Permit(&places.id, PermitStep::Acquire);
                let decision = self.fallback.decide(acquire, charges, policy, &why);
                let is_taken = decision.allowed();
                let is_local = policy == FailurePolicy::Local;
                places.renewed(heard_at, if is_local { PlacesIn::Local } else { PlacesIn::Nowhere });
                places.renew_after(heard_at, SOON.min(places.hold / 9));
                places.in_store.set(why.may_have_run());
                if !is_taken && why.may_have_run() {
                    // The store may hold a place for a request that is refused.
                    Arc::clone(self).release_later(Arc::clone(&places));
                }
                let decision = if options.shadow { decision.shadowed() } else { decision };
                self.notify(charges, options, &decision, heard_at);
                (decision, is_taken)
            }
        };
        unreleased.places = None;
        if !is_taken {
            return (decision, None);
        }
        if options.leaves_permit {
            self.permits.stats.count(&places, |counts| counts.acquired += 1);
            self.permits.lent.note(&places.id, charges, now);
        } else {
            self.permits.add(self, &places);
        }
        (decision, Some(places))
    }
}

/// True if a concurrency had no place left. A release may just be under way.
fn lacks_place(charges: &Charges<'_>, outcome: &Outcome) -> bool {
    let is_full = |(charge, bucket): (&Charge<'_>, &Bucket)| {
        charge.needs_permit() && !charge.limit().limit().is_covered(charge.cost(), bucket.amount())
    };
    !outcome.allowed && charges.iter().zip(outcome.buckets.iter()).any(is_full)
}

/// The buckets of an outcome that are not places.
fn part_of(charges: &Charges<'_>, outcome: &Outcome) -> Reply {
    let buckets = charges.iter().zip(outcome.buckets.iter()).filter(|(charge, _)| !charge.needs_permit());
    let buckets = buckets.map(|(_, bucket)| *bucket).collect();
    Reply::new(Verdict::done_if(outcome.allowed), outcome.at, buckets)
}
