//! Reservations: charged now, at what the work may cost, and settled once, at what it did cost.

use std::time::Duration;

use spile_core::{
    Amount, Cost, Decision, DecisionSource, LimitName, Operation, Outcome, Reply, ReservationId,
    SettleOutcome, Store, Verdict,
};
use spile_policy::{BucketCharge, Chain, identity};

use super::settle::Settled;
use super::{PlanList, RateLimiter};
use crate::ask::AskedCharges;
use crate::error::{AcquireError, LimiterError, SettleError};

/// Tokens that were charged for work whose cost is not known yet.
///
/// [`settle`](Self::settle) makes them what the work did cost. A reservation that is not settled stays charged, unless it
/// [is cancelled when it is dropped](Self::cancel_on_drop).
#[must_use = "what is not settled stays charged"]
pub struct Reservation<S: Store + 'static> {
    limiter: RateLimiter<S>,
    chain: Chain,
    id: ReservationId,
    decision: Decision,
    open: bool,
    cancel_on_drop: bool,
}

impl<S: Store + 'static> RateLimiter<S> {
    /// Spends `tokens` as [`allow`](Self::allow) does, for work whose cost is known only when it is done. The reservation can be
    /// settled for `ttl`: 1 second to 1 day. A denial is an error, and reserves nothing.
    ///
    /// A key can have at most [`MOST_OPEN`](ReservationId::MOST_OPEN) reservations open at once.
    ///
    /// ```
    /// # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; }
    /// # use std::time::Duration;
    /// # use spile::{Limit, MemoryStore, Plan, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let plans = [Plan::new("model", Limit::per_minute(1_000))?];
    /// let limiter = RateLimiter::builder().store(MemoryStore::new()).plans(plans).build();
    ///
    /// let mut reservation = limiter.reserve("user:123", "model", 800, Duration::from_secs(90)).await?;
    /// let denied = limiter.reserve("user:123", "model", 800, Duration::from_secs(90)).await.unwrap_err();
    /// assert!(denied.decision().is_some_and(|decision| !decision.allowed()));
    /// reservation.settle(420).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(
        &self,
        key: &str,
        plans: impl PlanList + Send,
        tokens: impl Into<Amount>,
        ttl: Duration,
    ) -> Result<Reservation<S>, AcquireError> {
        let (chain, id) = self.reservation_of(key, plans, tokens.into(), ttl)?;
        let decision = self.reserve_charges(AskedCharges::from(&chain), id).await;
        if !decision.allowed() {
            return Err(AcquireError::Denied(Box::new(decision)));
        }
        Ok(Reservation { limiter: self.clone(), chain, id, decision, open: true, cancel_on_drop: false })
    }

    fn reservation_of(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: Amount,
        ttl: Duration,
    ) -> Result<(Chain, ReservationId), LimiterError> {
        let id = ReservationId::new(self.inner.runtime.random_id(), ttl)?;
        let mut chain = Chain::new(None);
        let key = identity(key)?;
        Cost::new(tokens)?;
        plans.names().try_for_each(|plan| self.extend_chain(&mut chain, &key, plan, tokens))?;
        super::without_permit(chain.priced(tokens)?)?;
        Ok((chain, id))
    }
}

impl<S: Store> RateLimiter<S> {
    /// Spends charges so that [`settle_chain`](Self::settle_chain) can settle them by the same id. Leases are not used.
    pub(super) async fn reserve_charges(&self, asked: AskedCharges<'_>, id: ReservationId) -> Decision {
        let AskedCharges { charges, options } = asked;
        let inner = &self.inner;
        let now = inner.fallback.clock.now();
        if let Some(denial) = inner.cached_denial(&charges, now) {
            return inner.conclude(&charges, &options, Ok(denial), DecisionSource::DenyCache, Some(now));
        }
        let (counted, deadline) = (id.counted(&charges), options.deadline(inner.deadline));
        // The charges come first, so that the count of open reservations is left out of what is learned.
        let answer = inner.question(&charges).ask(Operation::Reserve(id), &counted, deadline).await;
        let answer = answer.map(Reply::into_outcome);
        let is_full = |outcome: &Outcome| {
            let count = counted.iter().zip(outcome.buckets.iter()).nth(charges.len());
            !outcome.allowed && count.is_some_and(|(count, bucket)| !count.is_covered_by(*bucket, outcome.at))
        };
        // The count is shown only if it denies.
        let shown = if answer.as_ref().is_ok_and(is_full) { &counted } else { &charges };
        let answer = answer.map(|outcome| Outcome {
            buckets: outcome.buckets.into_iter().take(shown.len()).collect(),
            ..outcome
        });
        inner.conclude(shown, &options, answer, DecisionSource::Store, Some(inner.fallback.clock.now()))
    }

    /// Makes a chain that was [reserved](crate::Ask::reserving) cost this much in the end. It happens once, by one amount, however often
    /// it is asked for: after an error of the store, ask again.
    ///
    /// # Panics
    /// If the chain is [empty](Chain::is_empty).
    pub async fn settle_chain(
        &self,
        chain: &Chain,
        id: ReservationId,
        cost: impl Fn(&BucketCharge) -> Amount + Send + Sync,
    ) -> Result<Settled, SettleError> {
        let charges = chain.late_charges(BucketCharge::cost);
        let costs = chain.buckets().iter().map(|bucket| Cost::saturating(cost(bucket)));
        // The count of open reservations gets its token back.
        let costs: Vec<Cost> = costs.chain([Cost::ZERO]).collect();
        let (inner, counted) = (&self.inner, id.counted(&charges));
        let settle = Operation::Settle(id, &costs);
        let reply = inner.question(&charges).ask(settle, &counted, inner.deadline).await?;
        let SettleOutcome { verdict, uncovered, settled, outcome } = reply.into();
        match verdict {
            Verdict::Expired => return Err(SettleError::Expired),
            Verdict::Unknown => return Err(SettleError::Unknown),
            Verdict::Done | Verdict::Before | Verdict::Denied => {}
        }
        let names = chain.buckets().iter().map(|bucket| bucket.limit().name().clone());
        let decision = Decision::from_outcome(&charges, &outcome, DecisionSource::Store);
        Ok(Settled {
            uncovered,
            already: verdict == Verdict::Before,
            costs: names.zip(settled).collect(),
            decision: Decision::standing(decision.limits().iter().cloned()),
        })
    }
}

impl<S: Store + 'static> Reservation<S> {
    /// The decision, which allowed it: the tokens were spent, or the failure policy let it pass.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Gives everything back when the reservation is dropped without having been settled: the work is cancelled, or panics.
    /// It is given back in the background, if it is dropped on a runtime.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancel_on_drop = true;
        self
    }

    /// Makes it cost `tokens` in the end, under every limit. Less is given back; more is charged, into debt if need be. It happens
    /// once, by one amount: after an error of the store it can be asked for again, after a success
    /// [`already`](Settled::already) is true and nothing changes.
    pub async fn settle(&mut self, tokens: impl Into<Amount> + Send) -> Result<Settled, SettleError> {
        let tokens = tokens.into();
        self.settle_each(|_| tokens).await
    }

    /// Makes it cost this much under each limit, as [`settle`](Self::settle) does.
    pub async fn settle_each(
        &mut self,
        cost: impl Fn(&LimitName) -> Amount + Send + Sync,
    ) -> Result<Settled, SettleError> {
        let cost = |bucket: &BucketCharge| cost(bucket.limit().name());
        let settled = self.limiter.settle_chain(&self.chain_in_force(), self.id, cost).await?;
        self.open = false;
        Ok(settled)
    }

    fn chain_in_force(&self) -> Chain {
        self.chain.clone().settling(|_, name| self.limiter.inner.limit_in_force(name).1)
    }
}

impl<S: Store + 'static> Drop for Reservation<S> {
    fn drop(&mut self) {
        if !(self.cancel_on_drop && self.open) {
            return;
        }
        let Some(spawner) = self.limiter.inner.runtime.spawner() else { return };
        let (limiter, chain, id) = (self.limiter.clone(), self.chain_in_force(), self.id);
        spawner.spawn(async move {
            // If the store does not answer, the reservation stays charged, as if the process had ended.
            let _settled = limiter.settle_chain(&chain, id, |_| Amount::ZERO).await;
        });
    }
}

impl<S: Store + 'static> std::fmt::Debug for Reservation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation")
            .field("decision", &self.decision)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
