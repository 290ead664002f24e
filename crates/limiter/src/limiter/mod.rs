//! The limiter: asks the store within a deadline, and turns a failure into a decision that says so.

mod acquire;
mod background;
mod builder;
mod decide;
mod fallback;
mod inner;
mod keyed;
mod leasing;
mod partial;
mod plan_list;
mod question;
mod reservation;
mod settle;
mod wait;

use std::cell::Ref;
use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Amount, Charge, ChargeError, ChargeOutcome, Charges, Cost, Decision, DecisionSource, EmbeddedStore, Key,
    Plan, Reason, RefundId, RefundOutcome, SpendTime, Store, StoreError, StoreExt,
};
use spile_memory::Usage;
use spile_policy::{Chain, ResolvedKey};

pub use self::builder::RateLimiterBuilder;
pub use self::decide::{EnforcedDecision, Ruling, ShadowDecision};
pub(crate) use self::fallback::Fallback;
pub(crate) use self::inner::LimiterInner;
use self::inner::{SHORTEST_PAUSE, SpentOne};
pub use self::keyed::KeyedLimiter;
pub use self::partial::{ChargeDecision, PartialDecision};
pub use self::plan_list::PlanList;
pub use self::reservation::Reservation;
pub use self::settle::Settled;
pub use self::wait::Wait;
use crate::ask::{AskOptions, AskedCharges};
use crate::error::{LimiterError, StoreCallError, UnknownPlan};

/// Decides whether a key may spend under its plans. Cheap to clone; clones share everything.
pub struct RateLimiter<S> {
    inner: Arc<LimiterInner<S>>,
}

/// The result of a refund with an id.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RefundDecision {
    /// True if it was given now. False if it had been given before: then nothing has changed.
    pub given: bool,
    /// The limits after it.
    pub decision: Decision,
}

impl RateLimiter<()> {
    /// Starts to build a limiter.
    pub fn builder() -> RateLimiterBuilder<()> {
        RateLimiterBuilder::new()
    }
}

impl<S: Store> RateLimiter<S> {
    /// Spends `tokens` of `key` under every limit of these plans, or under none of them.
    ///
    /// A failing store is never an error here: the failure policy turns it into a decision that says so. A plan with a
    /// concurrency is one: that takes a permit, and so [`acquire`](Self::acquire).
    pub async fn allow(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
    ) -> Result<Decision, LimiterError> {
        let tokens = tokens.into();
        if let Some(one) = self.spend_one(key, &plans, tokens) {
            return Ok(self.inner.conclude_one(&one));
        }
        let (inner, charges) = (&self.inner, without_permit(self.charges(key, plans, tokens)?)?);
        if let Some(decision) = inner.spend_at_once(&charges, &AskOptions::default()) {
            return Ok(decision);
        }
        match inner.decide_nearby(&charges, &AskOptions::default()) {
            Ok(decision) => Ok(decision),
            Err(share) => Ok(inner.wait_for(charges.into(), share).await),
        }
    }

    /// Answers as [`allow`](Self::allow) would, and spends nothing.
    pub fn peek(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> impl Future<Output = Result<Decision, LimiterError>> + Send {
        let charges = self.charges(key, plans, tokens);
        async move { Ok(self.peek_charges(charges?).await) }
    }

    /// Spends as many tokens as every limit has, up to `tokens`.
    pub fn spend_up_to(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> impl Future<Output = Result<PartialDecision, LimiterError>> + Send {
        let charges = self.reachable_charges(key, plans, tokens);
        async move { Ok(self.spend_up_to_charges(without_permit(charges?)?).await) }
    }

    /// Takes `tokens` that have been used already, under every limit of these plans: always, and into debt where they are not
    /// there. Until the refill has repaid the debt, every question is denied.
    pub fn charge(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> impl Future<Output = Result<ChargeDecision, StoreCallError>> + Send {
        let charges = self.late_charges(key, plans, tokens);
        async move { Ok(self.charge_late(charges?).await?) }
    }

    /// Gives `tokens` back under every limit of these plans, never above a capacity. They were spent by a decision that was
    /// [charged](Decision::charged_at) at `spent`; a quota takes nothing back from another window, nor if the time is unknown.
    pub fn refund(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
        spent: impl Into<SpendTime>,
    ) -> impl Future<Output = Result<Decision, StoreCallError>> + Send {
        let (charges, spent) = (self.charges(key, plans, tokens), spent.into());
        async move { Ok(self.refund_charges(charges?, spent).await?) }
    }

    /// Gives `tokens` back as [`refund`](Self::refund) does, once for each `id` of this key: a caller that does not know
    /// whether a refund has arrived can ask again with the same id. An id has 1 to 128 bytes and is remembered for an hour.
    pub fn refund_once(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
        spent: impl Into<SpendTime>,
        id: &str,
    ) -> impl Future<Output = Result<RefundDecision, StoreCallError>> + Send {
        let (charges, spent) = (self.charges(key, plans, tokens), spent.into());
        async move {
            let id = RefundId::new(id).map_err(LimiterError::from)?;
            Ok(self.refund_charges_once(charges?, spent, id).await?)
        }
    }

    /// Makes the buckets of `key` under these plans full again.
    pub fn reset(
        &self,
        key: &str,
        plans: impl PlanList,
    ) -> impl Future<Output = Result<(), StoreCallError>> + Send {
        let charges = self.charges(key, plans, 0);
        async move { Ok(self.reset_charges(charges?).await?) }
    }

    /// Waits until `tokens` can be spent, and spends them. Returns the denial if that would take longer than `wait` allows.
    ///
    /// While the store fails, the denial is returned at once, with its [reason](Decision::failure), unless the failure policy is
    /// `Local` or `wait` [fails open](Wait::fail_open). A denial by `Local` is returned at once if the store
    /// [may have charged](Decision::may_have_run): asking again could charge twice.
    ///
    /// Dropping the future while it waits costs nothing: tokens are spent in the step that ends the wait.
    pub async fn until_ready(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
        wait: Wait,
    ) -> Result<Decision, LimiterError> {
        let policy = wait.policy(self.inner.fallback.policy);
        let charges = without_permit(self.charges(key, plans, tokens)?)?;
        let asked = AskedCharges {
            charges,
            options: AskOptions { on_failure: Some(policy), ..AskOptions::default() },
        };
        let runtime = &self.inner.runtime;
        let give_up = wait.at_most.and_then(|limit| runtime.now().checked_add(limit));
        loop {
            let decision = self.spend(asked.clone()).await;
            let ready = decision.retry_after();
            let left = give_up.map_or(Duration::MAX, |give_up| give_up - runtime.now());
            let is_final = decision.allowed() || decision.may_have_run() || is_refused(&decision);
            if is_final || left.is_zero() || ready > left {
                return Ok(decision);
            }
            // Jitter must not make a caller wait longer than it allowed.
            let pause = ready.max(SHORTEST_PAUSE).saturating_add(wait.drawn_jitter(runtime));
            runtime.sleep(pause.min(left)).await;
        }
    }

    /// Answers as [`decide`](Self::decide) would, and spends nothing. The observer is not called.
    pub async fn peek_charges(&self, asked: impl Into<AskedCharges<'_>>) -> Decision {
        let (inner, AskedCharges { charges, options }) = (&*self.inner, asked.into());
        let (deadline, question) = (options.deadline(inner.deadline), inner.question(&charges));
        let answer = inner.in_time(deadline, inner.store.peek(&charges)).await;
        question.peeked(answer.as_ref());
        let decision = match answer {
            Ok(outcome) => {
                let outcome = inner.with_leases(&charges, outcome);
                Decision::from_outcome(&charges, &outcome, DecisionSource::Store)
            }
            Err(why) => inner.fallback.peek(&charges, options.policy(&inner.fallback), &why),
        };
        if options.shadow { decision.shadowed() } else { decision }
    }

    /// Spends as many tokens as every limit has, up to the smallest cost among the charges.
    pub async fn spend_up_to_charges(&self, asked: impl Into<AskedCharges<'_>>) -> PartialDecision {
        let (inner, AskedCharges { charges, options }) = (&*self.inner, asked.into());
        let asked = charges.iter().map(Charge::cost).min().unwrap_or(Cost::ZERO);
        if asked == Cost::ZERO {
            return PartialDecision {
                granted: Amount::ZERO,
                decision: self.peek_charges(AskedCharges { charges, options }).await,
            };
        }
        let (deadline, question) = (options.deadline(inner.deadline), inner.question(&charges));
        let answer = inner.in_time(deadline, inner.store.spend_up_to(&charges)).await;
        question.answered(answer.as_ref().map(|grant| &grant.outcome));
        let granted = match answer {
            Ok(grant) => PartialDecision::of(&charges, grant, DecisionSource::Store),
            Err(why) => inner.fallback.spend_up_to(&charges, asked, options.policy(&inner.fallback), &why),
        };
        let granted = if options.shadow { granted.shadowed() } else { granted };
        inner.tell(&charges, &options, &granted.decision, inner.fallback.clock.now());
        granted
    }

    /// Takes charges for what has been used already, as [`charge`](Self::charge) does.
    pub async fn charge_late(
        &self,
        asked: impl Into<AskedCharges<'_>>,
    ) -> Result<ChargeDecision, StoreError> {
        let (inner, AskedCharges { charges, options }) = (&*self.inner, asked.into());
        let (deadline, question) = (options.deadline(inner.deadline), inner.question(&charges));
        let answer = inner.in_time(deadline, inner.store.charge(&charges)).await;
        question.changed(answer.as_ref().map(|charged| &charged.outcome));
        let ChargeOutcome { uncovered, outcome } = answer?;
        let decision = Decision::from_outcome(&charges, &outcome, DecisionSource::Store);
        inner.tell(&charges, &options, &decision, inner.fallback.clock.now());
        Ok(ChargeDecision { uncovered, decision })
    }

    /// Gives back charges that the caller made, and that were spent at this time.
    pub async fn refund_charges(
        &self,
        charges: Charges<'_>,
        spent: impl Into<SpendTime> + Send,
    ) -> Result<Decision, StoreError> {
        let (inner, spent) = (&self.inner, spent.into());
        let question = inner.question(&charges);
        let answer = inner.in_time(inner.deadline, inner.store.refund(&charges, spent)).await;
        question.changed(answer.as_ref());
        Ok(Decision::from_outcome(&charges, &answer?, DecisionSource::Store))
    }

    /// Gives back charges that the caller made, once for each id.
    pub async fn refund_charges_once(
        &self,
        charges: Charges<'_>,
        spent: SpendTime,
        id: RefundId<'_>,
    ) -> Result<RefundDecision, StoreError> {
        let inner = &self.inner;
        let question = inner.question(&charges);
        let answer = inner.in_time(inner.deadline, inner.store.refund_once(&charges, spent, id)).await;
        question.changed(answer.as_ref().map(|refunded| &refunded.outcome));
        let RefundOutcome { given, outcome } = answer?;
        Ok(RefundDecision {
            given,
            decision: Decision::from_outcome(&charges, &outcome, DecisionSource::Store),
        })
    }

    /// Makes the buckets of these charges full again.
    pub async fn reset_charges(&self, charges: Charges<'_>) -> Result<(), StoreError> {
        // A reset has no outcome to learn from, so the buckets are forgotten however it ends.
        let _unanswered = self.inner.question(&charges);
        let done = self.inner.in_time(self.inner.deadline, self.inner.store.reset(&charges)).await;
        // If it did not happen, what is here is still worth something.
        if let Some(leases) = &self.inner.leases
            && done.as_ref().map_or_else(StoreError::may_have_run, |()| true)
        {
            leases.forget(&charges);
        }
        done
    }

    /// The charges of one key under every limit of these plans, for [`decide`](Self::decide) and its kin.
    pub fn charges<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> Result<Charges<'k>, LimiterError> {
        let tokens = tokens.into();
        self.charges_of(key, plans, |_| Ok(Cost::new(tokens)?))
    }

    /// Adds to a chain what a key owes under a plan, as the registry has it now: the user *and* the tenant.
    pub fn extend_chain(
        &self,
        chain: &mut Chain,
        key: &ResolvedKey,
        plan: &str,
        tokens: impl Into<Amount>,
    ) -> Result<(), LimiterError> {
        let (tokens, mut charged) = (tokens.into(), Ok(()));
        let known = self.inner.plans.visit(plan, &mut |plan| charged = chain.charge(key, plan, tokens));
        charged?;
        if known { Ok(()) } else { Err(LimiterError::UnknownPlan(plan.to_owned())) }
    }

    /// An error that names the plans there are, unless one is called `plan`.
    pub fn require_plan(&self, plan: &str) -> Result<(), UnknownPlan> {
        if self.inner.plans.visit(plan, &mut |_| ()) {
            return Ok(());
        }
        Err(UnknownPlan { plan: plan.to_owned(), known: self.inner.plans.names() })
    }

    /// The store that the limiter asks.
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// How long a decision may take, unless its question says less.
    pub fn deadline(&self) -> Duration {
        self.inner.deadline
    }

    /// How much the embedded store of the policy `local` holds.
    pub fn local_usage(&self) -> Usage {
        self.inner.fallback.local.usage()
    }

    /// The charges of one key, with the cost lowered to the smallest capacity among the limits.
    fn reachable_charges<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> Result<Charges<'k>, LimiterError> {
        let tokens = tokens.into();
        self.charges_of(key, plans, |plan| {
            let smallest = plan.limits().iter().map(|limit| limit.limit().capacity()).min();
            Ok(Cost::new(tokens.min(smallest.unwrap_or_default()))?)
        })
    }

    /// The charges of one key for what has been used already, whatever the capacities.
    fn late_charges<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> Result<Charges<'k>, LimiterError> {
        let (key, cost) = (Key::new(key)?, Cost::new(tokens)?);
        let mut late = Vec::new();
        plans.try_each(|name| {
            let known = self.inner.plans.visit(name, &mut |plan| {
                late.extend(plan.limits().iter().map(|limit| Charge::late(key, limit.clone(), cost)));
            });
            if known { Ok(()) } else { Err(LimiterError::UnknownPlan(name.to_owned())) }
        })?;
        Ok(Charges::new(late)?)
    }

    /// Spends under a plan of one limit, if the store needs no waiting. `None` means that nothing was spent, also because the
    /// question has a fault: build the charges to get the error.
    ///
    /// No chain is made, and the decision is left to the caller: to move either costs as much as the store's answer.
    #[expect(clippy::inline_always, reason = "as the store's answer must not be moved either")]
    #[inline(always)]
    fn spend_one<'k>(&self, key: &'k str, plans: &impl PlanList, tokens: Amount) -> Option<SpentOne<'k, '_>> {
        let (key, cost) = (Key::new(key).ok()?, Cost::new(tokens).ok()?);
        let plan = self.inner.plans.lend(plans.only()?)?;
        let limit =
            Ref::filter_map(plan, |plan| plan.limits().first().filter(|_| plan.limits().len() == 1)).ok()?;
        if !limit.limit().can_cover(cost) || limit.limit().is_concurrency() {
            return None;
        }
        let spent = self.inner.store.spend_one(key, &limit, cost)?;
        Some(SpentOne { key, limit, cost, spent })
    }

    fn charges_of<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        cost: impl Fn(&Plan) -> Result<Cost, LimiterError>,
    ) -> Result<Charges<'k>, LimiterError> {
        let key = Key::new(key)?;
        let mut chain: Option<Charges<'k>> = None;
        self.extend(&mut chain, key, plans, cost)?;
        chain.ok_or(LimiterError::Charge(ChargeError::Empty))
    }

    #[inline]
    fn extend<'k>(
        &self,
        chain: &mut Option<Charges<'k>>,
        key: Key<'k>,
        plans: impl PlanList,
        cost: impl Fn(&Plan) -> Result<Cost, LimiterError>,
    ) -> Result<(), LimiterError> {
        plans.try_each(|name| {
            let mut charged = Ok(());
            let known = self.inner.plans.visit(name, &mut |plan| {
                charged = cost(plan).and_then(|cost| extend(chain, key, plan, cost));
            });
            charged?;
            if known { Ok(()) } else { Err(LimiterError::UnknownPlan(name.to_owned())) }
        })
    }
}

/// The charges, unless they take a permit, which could not be released.
#[inline]
fn without_permit(charges: Charges<'_>) -> Result<Charges<'_>, LimiterError> {
    match charges.first_permit() {
        None => Ok(charges),
        Some(charge) => Err(LimiterError::NeedsPermit(charge.limit().name().clone())),
    }
}

/// True if the failure policy refused it: waiting is no use before the store is back, which cannot be known.
fn is_refused(decision: &Decision) -> bool {
    decision.reason() == Reason::FailClosed
}

/// Adds a charge for each limit of the plan.
#[inline]
fn extend<'k>(
    chain: &mut Option<Charges<'k>>,
    key: Key<'k>,
    plan: &Plan,
    cost: Cost,
) -> Result<(), LimiterError> {
    for limit in plan.limits() {
        match chain {
            Some(chain) => chain.push(Charge::new(key, limit.clone(), cost)?)?,
            None => *chain = Some(Charges::one(key, limit, cost)?),
        }
    }
    Ok(())
}

impl<S: EmbeddedStore> RateLimiter<S> {
    /// Spends as [`allow`](Self::allow) does, without a future: for code that is not async. Only a store in this process
    /// can be asked so.
    ///
    /// ```
    /// # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; }
    /// use spile::{Limit, MemoryStore, Plan, RateLimiter};
    ///
    /// let free = Plan::new("free", Limit::per_second(1).burst(10))?;
    /// let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([free]).build();
    /// assert!(limiter.try_allow("user:123", "free", 1)?.allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the store answers later, which an embedded store never does.
    pub fn try_allow(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> Result<Decision, LimiterError> {
        let tokens = tokens.into();
        if let Some(one) = self.spend_one(key, &plans, tokens) {
            return Ok(self.inner.conclude_one(&one));
        }
        let charges = without_permit(self.charges(key, plans, tokens)?)?;
        let decided = self.inner.spend_at_once(&charges, &AskOptions::default());
        Ok(decided.expect("an embedded store answers at once"))
    }
}

impl<S> From<LimiterInner<S>> for RateLimiter<S> {
    fn from(inner: LimiterInner<S>) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl<S> Clone for RateLimiter<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S> std::fmt::Debug for RateLimiter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimiter")
            .field("on_failure", &self.inner.fallback.policy)
            .field("deadline", &self.inner.deadline)
            .finish_non_exhaustive()
    }
}
