//! The limiter: asks the store within a deadline, and turns a failure into a decision that says so.

mod builder;
mod fallback;
mod keyed;
mod partial;
mod plan_list;
mod settle;
mod wait;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use spile_core::{
    Charge, ChargeError, Charges, Cost, Decision, EmbeddedStore, Key, Micros, Outcome, Plan, PlanRegistry,
    RefundId, RefundOutcome, Source, Store, StoreError,
};
use spile_memory::Usage;
use spile_policy::{Chain, ResolvedKey};
use tokio::time::Instant;

pub use self::builder::Builder;
pub(crate) use self::fallback::Fallback;
pub use self::keyed::KeyedLimiter;
pub use self::partial::PartialDecision;
pub use self::plan_list::PlanList;
pub use self::settle::{Settled, is_taken};
pub use self::wait::Wait;
use crate::ask::{Ask, Terms};
use crate::error::{LimiterError, StoreFailed, UnknownPlan};
use crate::observer::{Counts, Observed, Observer};

/// The least time between two tries of somebody who waits, whatever a denial says.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Decides whether a key may spend under its plans. Cheap to clone; clones share everything.
pub struct RateLimiter<S> {
    inner: Arc<Inner<S>>,
}

pub(crate) struct Inner<S> {
    pub(crate) store: S,
    pub(crate) plans: Arc<dyn PlanRegistry>,
    pub(crate) deadline: Duration,
    pub(crate) fallback: Fallback,
    pub(crate) observer: Option<Box<dyn Observer>>,
    /// What the observer lets the limiter count.
    pub(crate) counts: Option<Arc<Counts>>,
}

/// What a refund with an id came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RefundDecision {
    /// Whether it was given now. False if it had been before: then nothing has changed.
    pub given: bool,
    /// How the limits stand after it.
    pub decision: Decision,
}

impl RateLimiter<()> {
    /// How to put one together.
    pub fn builder() -> Builder<()> {
        Builder::new()
    }
}

impl<S: Store> RateLimiter<S> {
    /// Spends `tokens` of `key` under every limit of these plans, or under none.
    ///
    /// A failing store is never an error here: the failure policy turns it into a decision that says so.
    pub async fn allow(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: u64,
    ) -> Result<Decision, LimiterError> {
        let inner = &*self.inner;
        // The charges stay where they were made: moving them about would cost as much as the store's answer.
        let charges = {
            let charges = self.charges(key, plans, tokens);
            if let Ok(charges) = &charges
                && let Some(answer) = inner.store.try_spend(charges)
            {
                return Ok(inner.conclude(charges, &Terms::default(), answer, None));
            }
            charges?
        };
        Ok(inner.wait_for(charges.into()).await)
    }

    /// Answers as [`allow`](Self::allow) would, and spends nothing.
    pub fn peek(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: u64,
    ) -> impl Future<Output = Result<Decision, LimiterError>> + Send {
        let charges = self.charges(key, plans, tokens);
        async move { Ok(self.peek_charges(charges?).await) }
    }

    /// Spends as many tokens as every limit has, up to `tokens`.
    pub fn spend_up_to(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: u64,
    ) -> impl Future<Output = Result<PartialDecision, LimiterError>> + Send {
        let charges = self.reachable_charges(key, plans, tokens);
        async move { Ok(self.spend_up_to_charges(charges?).await) }
    }

    /// Gives `tokens` back under every limit of these plans, never above a capacity.
    pub fn refund(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: u64,
    ) -> impl Future<Output = Result<Decision, StoreFailed>> + Send {
        let charges = self.charges(key, plans, tokens);
        async move { Ok(self.refund_charges(charges?).await?) }
    }

    /// Gives `tokens` back as [`refund`](Self::refund) does, once for each `id` of this key: a caller who does not know
    /// whether a refund has arrived asks again with the same one. An id has 1 to 128 bytes and is remembered for an hour.
    pub fn refund_once(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: u64,
        id: &str,
    ) -> impl Future<Output = Result<RefundDecision, StoreFailed>> + Send {
        let charges = self.charges(key, plans, tokens);
        async move {
            let id = RefundId::new(id).map_err(LimiterError::from)?;
            Ok(self.refund_charges_once(charges?, id).await?)
        }
    }

    /// Forgets what `key` has spent under these plans: its buckets are full again.
    pub fn reset(
        &self,
        key: &str,
        plans: impl PlanList,
    ) -> impl Future<Output = Result<(), StoreFailed>> + Send {
        let charges = self.charges(key, plans, 0);
        async move { Ok(self.reset_charges(charges?).await?) }
    }

    /// Waits until `tokens` could be spent and spends them, or gives the denial back where that lies beyond
    /// what `wait` allows.
    ///
    /// A denial by the failure policy also comes back at once if the store [may have
    /// charged](Decision::may_have_run): to ask again could charge twice.
    ///
    /// Dropping the future while it waits costs nothing: tokens are spent in the step that ends the wait.
    pub async fn until_ready(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: u64,
        wait: Wait,
    ) -> Result<Decision, LimiterError> {
        let ask = Ask::from(self.charges(key, plans, tokens)?);
        let give_up = wait.at_most.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let decision = self.allow_charges(ask.clone()).await;
            let ready = decision.retry_after();
            let left = give_up.map_or(Duration::MAX, |give_up| give_up - Instant::now());
            if decision.allowed() || decision.may_have_run() || left.is_zero() || ready > left {
                return Ok(decision);
            }
            // Jitter must not carry anybody past the moment at which they give up.
            let pause = ready.max(SHORTEST_PAUSE).saturating_add(wait.drawn_jitter());
            tokio::time::sleep(pause.min(left)).await;
        }
    }

    /// Decides about charges that were put together by the caller.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold the question twice")]
    pub fn allow_charges(&self, ask: Ask<'_>) -> impl Future<Output = Decision> + Send {
        async move {
            if let Some(answer) = self.inner.store.try_spend(&ask.charges) {
                return self.inner.conclude(&ask.charges, &ask.terms, answer, None);
            }
            self.inner.wait_for(ask).await
        }
    }

    /// Decides where the store answers without waiting, as one in memory does. `None` means that nothing was
    /// decided, and that [`allow_charges`](Self::allow_charges) is to be asked.
    pub fn try_allow_charges(&self, ask: &Ask<'_>) -> Option<Decision> {
        let answer = self.inner.store.try_spend(&ask.charges)?;
        Some(self.inner.conclude(&ask.charges, &ask.terms, answer, None))
    }

    /// Looks at charges that were put together by the caller. Nobody is told: nothing was decided.
    pub async fn peek_charges(&self, ask: impl Into<Ask<'_>>) -> Decision {
        let (inner, Ask { charges, terms }) = (&*self.inner, ask.into());
        let deadline = terms.deadline(inner.deadline);
        let decision = match in_time(deadline, inner.store.peek(&charges)).await {
            Ok(outcome) => Decision::from_outcome(&charges, &outcome, Source::Store),
            Err(why) => inner.fallback.peek(&charges, terms.policy(&inner.fallback), &why),
        };
        if terms.shadow { decision.shadowed() } else { decision }
    }

    /// Spends of charges that were put together by the caller as much as every limit has.
    pub async fn spend_up_to_charges(&self, ask: impl Into<Ask<'_>>) -> PartialDecision {
        let (inner, Ask { charges, terms }) = (&*self.inner, ask.into());
        let asked = charges.iter().map(Charge::cost).min().unwrap_or(Cost::ZERO);
        if asked == Cost::ZERO {
            return PartialDecision { tokens: 0, decision: self.peek_charges(Ask { charges, terms }).await };
        }
        let deadline = terms.deadline(inner.deadline);
        let granted = match in_time(deadline, inner.store.spend_up_to(&charges)).await {
            Ok(grant) => PartialDecision::of(&charges, grant, Source::Store),
            Err(why) => inner.fallback.spend_up_to(&charges, asked, terms.policy(&inner.fallback), &why),
        };
        inner.tell(&charges, &terms, &granted.decision, inner.fallback.clock.now());
        granted
    }

    /// Gives back charges that were put together by the caller.
    pub async fn refund_charges(&self, charges: Charges<'_>) -> Result<Decision, StoreError> {
        let outcome: Outcome = in_time(self.inner.deadline, self.inner.store.refund(&charges)).await?;
        Ok(Decision::from_outcome(&charges, &outcome, Source::Store))
    }

    /// Gives back charges that were put together by the caller, once for each id.
    pub async fn refund_charges_once(
        &self,
        charges: Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundDecision, StoreError> {
        let RefundOutcome { given, outcome } =
            in_time(self.inner.deadline, self.inner.store.refund_once(&charges, id)).await?;
        Ok(RefundDecision { given, decision: Decision::from_outcome(&charges, &outcome, Source::Store) })
    }

    /// Forgets the buckets of charges that were put together by the caller.
    pub async fn reset_charges(&self, charges: Charges<'_>) -> Result<(), StoreError> {
        in_time(self.inner.deadline, self.inner.store.reset(&charges)).await
    }

    /// The charges of one key under every limit of these plans, to be [decided](Self::allow_charges) upon.
    pub fn charges<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        tokens: u64,
    ) -> Result<Charges<'k>, LimiterError> {
        self.charges_of(key, plans, |_| Ok(Cost::new(tokens)?))
    }

    /// Charges a key of a chain under a plan, as the registry has it now: the user *and* the tenant.
    pub fn charge(
        &self,
        chain: &mut Chain,
        key: &ResolvedKey,
        plan: &str,
        tokens: u64,
    ) -> Result<(), LimiterError> {
        let mut charged = Ok(());
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

    /// Whether [`try_allow_charges`](Self::try_allow_charges) answers.
    pub fn answers_at_once(&self) -> bool {
        self.inner.store.answers_at_once()
    }

    /// The store that the limiter asks.
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// How much the store behind the policy `local` holds.
    pub fn local_usage(&self) -> Usage {
        self.inner.fallback.local.usage()
    }

    /// The charges of one key, with the cost brought down to what the smallest limit could ever grant.
    fn reachable_charges<'k>(
        &self,
        key: &'k str,
        plans: impl PlanList,
        tokens: u64,
    ) -> Result<Charges<'k>, LimiterError> {
        self.charges_of(key, plans, |plan| {
            let smallest = plan.limits().iter().map(|limit| limit.limit().capacity()).min().unwrap_or(0);
            Ok(Cost::new(tokens.min(u64::from(smallest)))?)
        })
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
    pub fn try_allow(&self, key: &str, plans: impl PlanList, tokens: u64) -> Result<Decision, LimiterError> {
        Ok(self.allow_now(&self.charges(key, plans, tokens)?))
    }

    pub(crate) fn allow_now(&self, charges: &Charges<'_>) -> Decision {
        let outcome = self.inner.store.spend_now(charges);
        self.inner.conclude(charges, &Terms::default(), Ok(outcome), None)
    }
}

impl<S: Store> Inner<S> {
    /// Decides by a store that must be waited for. On the heap and behind a pointer, for a future is moved before it is
    /// polled, and what is moved, or unfolded where nobody waits, costs those who need not.
    #[cold]
    fn wait_for<'a>(&'a self, ask: Ask<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        Box::pin(async move {
            let deadline = ask.terms.deadline(self.deadline);
            let mut answer = in_time(deadline, self.store.spend(&ask.charges)).await;
            if !ask.terms.patience.is_zero() {
                let give_up = Instant::now() + ask.terms.patience;
                while matches!(answer, Err(StoreError::Overloaded(_))) && Instant::now() < give_up {
                    tokio::time::sleep(SHORTEST_PAUSE).await;
                    answer = in_time(deadline, self.store.spend(&ask.charges)).await;
                }
            }
            // Nodes of a store behind a network have clocks that differ, so samples are spaced by the clock of this
            // machine.
            let heard_at = self.observer.as_ref().map(|_| self.fallback.clock.now());
            self.conclude(&ask.charges, &ask.terms, answer, heard_at)
        })
    }

    /// What the store's answer comes to, or the policy's in its place. `heard_at` is `None` if the store answered at
    /// once: then its own time is the time of this machine, and the clock need not be read again.
    #[expect(
        clippy::inline_always,
        reason = "the decision is then made where the caller wants it, and never moved"
    )]
    #[inline(always)]
    fn conclude(
        &self,
        charges: &Charges<'_>,
        terms: &Terms<'_>,
        answer: Result<Outcome, StoreError>,
        heard_at: Option<Micros>,
    ) -> Decision {
        let outcome = match answer {
            Ok(outcome) if !terms.shadow => outcome,
            answer => return self.conclude_specially(charges, terms, answer, heard_at),
        };
        let decision = Decision::from_outcome(charges, &outcome, Source::Store);
        self.count_or_tell(charges, terms, &decision, heard_at.unwrap_or(outcome.at));
        decision
    }

    /// The same for what is rare: a store that failed, a rule that only watches.
    #[cold]
    fn conclude_specially(
        &self,
        charges: &Charges<'_>,
        terms: &Terms<'_>,
        answer: Result<Outcome, StoreError>,
        heard_at: Option<Micros>,
    ) -> Decision {
        let mut decision = match answer {
            Ok(outcome) => Decision::from_outcome(charges, &outcome, Source::Store),
            Err(why) => self.fallback.allow(charges, terms.policy(&self.fallback), &why),
        };
        if terms.shadow {
            decision = decision.shadowed();
        }
        self.tell(charges, terms, &decision, heard_at.unwrap_or(decision.at()));
        decision
    }
}

impl<S> Inner<S> {
    /// Counts a decision of the store on the observer's behalf, or tells of it where that does not do.
    #[inline]
    fn count_or_tell(&self, charges: &Charges<'_>, terms: &Terms<'_>, decision: &Decision, heard_at: Micros) {
        if let Some(counts) = &self.counts
            && terms.tenant.is_none()
            && counts.add_plain(terms.rule, decision, heard_at)
        {
            return;
        }
        self.tell(charges, terms, decision, heard_at);
    }

    /// Tells the observer, if there is one. A decision does not keep its keys, so they are shown beside it.
    #[inline]
    fn tell(&self, charges: &Charges<'_>, terms: &Terms<'_>, decision: &Decision, heard_at: Micros) {
        if let Some(observer) = &self.observer {
            let (rule, tenant) = (terms.rule, terms.tenant);
            observer.decided(&Observed { rule, tenant, charges, decision, heard_at });
        }
    }
}

/// Runs a store's call within a deadline. A call that is ready at once never starts a timer, and so
/// needs no runtime either.
async fn in_time<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    if let Poll::Ready(answer) = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
        return answer;
    }
    let answer = tokio::time::timeout(deadline, call).await;
    answer.unwrap_or(Err(StoreError::TimedOut(deadline)))
}

impl<S> From<Inner<S>> for RateLimiter<S> {
    fn from(inner: Inner<S>) -> Self {
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
