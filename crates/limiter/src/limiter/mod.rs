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
    Amount, Charge, ChargeError, Charges, Cost, Decision, DecisionSource, EmbeddedStore, Key, NamedLimit,
    Operation, Plan, Reason, RefundId, SpendTime, Store, StoreError, Verdict,
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
use crate::lease::LeaseQuestion;

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
        match inner.decide_locally(&charges, &AskOptions::default(), LeaseQuestion::Alone, false) {
            Ok(decision) => Ok(decision),
            Err(share) => Ok(inner.wait_for(charges.into(), share).await),
        }
    }

    /// Answers as [`allow`](Self::allow) would, and spends nothing.
    pub async fn peek(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
    ) -> Result<Decision, LimiterError> {
        let charges = self.charges(key, plans, tokens)?;
        Ok(self.peek_charges(charges).await)
    }

    /// Spends as many tokens as every limit has, up to `tokens`.
    pub async fn spend_up_to(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
    ) -> Result<PartialDecision, LimiterError> {
        let tokens = tokens.into();
        let charges = self.charges_by(key, plans, |key, plan, limit| {
            let smallest = plan.limits().iter().map(|limit| limit.limit().capacity()).min();
            let reachable = tokens.min(smallest.unwrap_or_default());
            Ok(Charge::new(key, limit.clone(), Cost::new(reachable)?)?)
        })?;
        Ok(self.spend_up_to_charges(without_permit(charges)?).await)
    }

    /// Takes `tokens` that have been used already, under every limit of these plans: always, and into debt where they are not
    /// there. Until the refill has repaid the debt, every question is denied.
    pub async fn charge(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
    ) -> Result<ChargeDecision, StoreCallError> {
        let tokens = tokens.into();
        let late =
            |key, _: &Plan, limit: &NamedLimit| Ok(Charge::late(key, limit.clone(), Cost::new(tokens)?));
        let charges = self.charges_by(key, plans, late)?;
        Ok(self.charge_late(charges).await?)
    }

    /// Gives `tokens` back under every limit of these plans, never above a capacity. They were spent by a decision that was
    /// [charged](Decision::charged_at) at `spent`; a quota takes nothing back from another window, nor if the time is unknown.
    pub async fn refund(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
        spent: impl Into<SpendTime>,
    ) -> Result<Decision, StoreCallError> {
        let charges = self.charges(key, plans, tokens)?;
        Ok(self.refund_charges(charges, spent.into()).await?)
    }

    /// Gives `tokens` back as [`refund`](Self::refund) does, once for each `id` of this key: a caller that does not know
    /// whether a refund has arrived can ask again with the same id. An id has 1 to 128 bytes and is remembered for an hour.
    pub async fn refund_once(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
        spent: impl Into<SpendTime>,
        id: &str,
    ) -> Result<RefundDecision, StoreCallError> {
        let id = RefundId::new(id).map_err(LimiterError::from)?;
        let charges = self.charges(key, plans, tokens)?;
        Ok(self.refund_charges_once(charges, spent.into(), id).await?)
    }

    /// Makes the buckets of `key` under these plans full again.
    pub async fn reset(&self, key: &str, plans: impl PlanList + Send) -> Result<(), StoreCallError> {
        let charges = self.charges(key, plans, 0)?;
        Ok(self.reset_charges(charges).await?)
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
        let mut asked = AskedCharges::from(without_permit(self.charges(key, plans, tokens)?)?);
        asked.options.on_failure = Some(policy);
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
        let decision = match inner.ask(Operation::Peek, &charges, options.deadline(inner.deadline)).await {
            Ok(reply) => {
                let outcome = inner.with_leases(&charges, reply.into_outcome());
                Decision::from_outcome(&charges, &outcome, DecisionSource::Store)
            }
            Err(why) => {
                let policy = options.policy(&inner.fallback);
                inner.fallback.decide(Operation::Peek, &charges, policy, &why)
            }
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
        let deadline = options.deadline(inner.deadline);
        let granted = match inner.ask(Operation::SpendUpTo, &charges, deadline).await {
            Ok(reply) => PartialDecision::of(&charges, reply.into(), DecisionSource::Store),
            Err(why) => inner.fallback.spend_up_to(&charges, asked, options.policy(&inner.fallback), &why),
        };
        let granted = if options.shadow { granted.shadowed() } else { granted };
        inner.notify(&charges, &options, &granted.decision, inner.fallback.clock.now());
        granted
    }

    /// Takes charges for what has been used already, as [`charge`](Self::charge) does.
    pub async fn charge_late(
        &self,
        asked: impl Into<AskedCharges<'_>>,
    ) -> Result<ChargeDecision, StoreError> {
        let (inner, AskedCharges { charges, options }) = (&*self.inner, asked.into());
        let reply = inner.ask(Operation::Charge, &charges, options.deadline(inner.deadline)).await?;
        let uncovered = reply.amount;
        let decision = Decision::from_outcome(&charges, &reply.into_outcome(), DecisionSource::Store);
        inner.notify(&charges, &options, &decision, inner.fallback.clock.now());
        Ok(ChargeDecision { uncovered, decision })
    }

    /// Gives back charges that the caller made, and that were spent at this time.
    pub async fn refund_charges(
        &self,
        charges: Charges<'_>,
        spent: impl Into<SpendTime> + Send,
    ) -> Result<Decision, StoreError> {
        let refund = Operation::Refund { spent: spent.into(), once: None };
        let reply = self.inner.ask(refund, &charges, self.inner.deadline).await?;
        Ok(Decision::from_outcome(&charges, &reply.into_outcome(), DecisionSource::Store))
    }

    /// Gives back charges that the caller made, once for each id.
    pub async fn refund_charges_once(
        &self,
        charges: Charges<'_>,
        spent: SpendTime,
        id: RefundId<'_>,
    ) -> Result<RefundDecision, StoreError> {
        let refund = Operation::Refund { spent, once: Some(id) };
        let reply = self.inner.ask(refund, &charges, self.inner.deadline).await?;
        Ok(RefundDecision {
            given: reply.verdict == Verdict::Done,
            decision: Decision::from_outcome(&charges, &reply.into_outcome(), DecisionSource::Store),
        })
    }

    /// Makes the buckets of these charges full again.
    pub async fn reset_charges(&self, charges: Charges<'_>) -> Result<(), StoreError> {
        let done = self.inner.ask(Operation::Reset, &charges, self.inner.deadline).await;
        // If it did not happen, what is here is still worth something.
        if let Some(leases) = &self.inner.leases
            && done.as_ref().map_or_else(StoreError::may_have_run, |_| true)
        {
            leases.forget(&charges);
        }
        done.map(drop)
    }

    /// The charges of one key under every limit of these plans, for [`decide`](Self::decide) and its kin.
    pub fn charges<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        tokens: impl Into<Amount>,
    ) -> Result<Charges<'k>, LimiterError> {
        let tokens = tokens.into();
        self.charges_by(key, plans, |key, _, limit| Ok(Charge::new(key, limit.clone(), Cost::new(tokens)?)?))
    }

    /// Adds to a chain what a key owes under a plan, as the registry has it now: the user *and* the tenant.
    pub fn extend_chain(
        &self,
        chain: &mut Chain,
        key: &ResolvedKey,
        plan: &str,
        tokens: impl Into<Amount>,
    ) -> Result<(), LimiterError> {
        let tokens = tokens.into();
        self.with_plan(plan, |plan| Ok(chain.charge(key, plan, tokens)?))
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

    /// The charges of one key under every limit of these plans, as `charge` makes them.
    #[inline]
    fn charges_by<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        charge: impl Fn(Key<'k>, &Plan, &NamedLimit) -> Result<Charge<'k>, LimiterError>,
    ) -> Result<Charges<'k>, LimiterError> {
        let key = Key::new(key)?;
        let mut chain: Option<Charges<'k>> = None;
        let mut add = |charge| {
            if let Some(chain) = &mut chain {
                return chain.push(charge);
            }
            chain = Some(Charges::from(charge));
            Ok(())
        };
        plans.names().try_for_each(|name| {
            self.with_plan(name, |plan| {
                plan.limits().iter().try_for_each(|limit| Ok(add(charge(key, plan, limit)?)?))
            })
        })?;
        chain.ok_or(LimiterError::Charge(ChargeError::Empty))
    }

    /// Does something with the plan of this name.
    #[inline]
    fn with_plan(
        &self,
        name: &str,
        mut act: impl FnMut(&Plan) -> Result<(), LimiterError>,
    ) -> Result<(), LimiterError> {
        let mut done = Ok(());
        let known = self.inner.plans.visit(name, &mut |plan| done = act(plan));
        if known { done } else { Err(LimiterError::UnknownPlan(name.to_owned())) }
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
