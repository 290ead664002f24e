//! Reservations: charged now, at what the work may cost, and settled once, at what it did cost.

use std::time::Duration;

use spile_core::{
    Amount, Charges, Cost, Decision, DecisionSource, LimitStatus, ReservationMarker, SettleOutcome, Store,
    StoreError, StoreExt,
};
use spile_policy::{BucketCharge, Chain, identity};

use super::settle::Settled;
use super::{PlanList, RateLimiter};
use crate::ask::Ask;
use crate::error::{LimiterError, ReserveError};

/// Tokens that were charged for work whose cost is not known yet.
///
/// [`settle`](Self::settle) makes them what the work did cost. A reservation that is not settled stays charged, unless it
/// [is cancelled when it is dropped](Self::cancel_on_drop).
#[must_use = "what is not settled stays charged"]
pub struct Reservation<S: Store + 'static> {
    limiter: RateLimiter<S>,
    chain: Chain,
    marker: ReservationMarker,
    decision: Decision,
    open: bool,
    cancel_on_drop: bool,
}

impl<S: Store + 'static> RateLimiter<S> {
    /// Spends `tokens` as [`allow`](Self::allow) does, for work whose cost is known only when it is done. The reservation can be
    /// settled for `ttl`: 1 second to 1 day. A denial is an error, and reserves nothing.
    ///
    /// A key can have at most [`MOST_OPEN`](ReservationMarker::MOST_OPEN) reservations open at once.
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
    ) -> Result<Reservation<S>, ReserveError> {
        let (chain, marker) = self.reservation_of(key, plans, tokens.into(), ttl)?;
        let decision = self.reserve_chain(&chain, marker).await;
        if !decision.allowed() {
            return Err(ReserveError::Denied(Box::new(decision)));
        }
        Ok(Reservation { limiter: self.clone(), chain, marker, decision, open: true, cancel_on_drop: false })
    }

    fn reservation_of(
        &self,
        key: &str,
        plans: impl PlanList,
        tokens: Amount,
        ttl: Duration,
    ) -> Result<(Chain, ReservationMarker), LimiterError> {
        let marker = ReservationMarker::new(self.inner.runtime.random_id(), ttl)?;
        let mut chain = Chain::new(None);
        let key = identity(key)?;
        Cost::new(tokens)?;
        for plan in plans.to_names() {
            self.extend_chain(&mut chain, &key, &plan, tokens)?;
        }
        super::without_permit(chain.priced(tokens)?)?;
        Ok((chain, marker))
    }
}

impl<S: Store> RateLimiter<S> {
    /// Spends a chain as [`allow_charges`](Self::allow_charges) does, so that
    /// [`settle_chain`](Self::settle_chain) can settle it by the same marker. Leases are not used.
    pub async fn reserve_chain(&self, chain: &Chain, marker: ReservationMarker) -> Decision {
        let Ask { charges, options } = Ask::from(chain);
        let inner = &self.inner;
        let now = inner.fallback.clock.now();
        if let Some(denial) = inner.denied_nearby(&charges, now) {
            return inner.conclude(&charges, &options, Ok(denial), DecisionSource::DenyCache, Some(now));
        }
        let question = inner.question(&charges);
        let deadline = options.deadline(inner.deadline);
        let answer = inner.in_time(deadline, inner.store.spend(&marker.reserve(&charges))).await;
        // The charges come first, so that the buckets of the markers are left out.
        question.answered(answer.as_ref());
        let (shown, answer) = match answer {
            Ok(outcome) => {
                let (shown, outcome) = marker.without_markers(&charges, &outcome);
                (shown, Ok(outcome))
            }
            Err(why) => (charges.clone(), Err(why)),
        };
        let heard_at = Some(inner.fallback.clock.now());
        inner.conclude(&shown, &options, answer, DecisionSource::Store, heard_at)
    }

    /// Makes a chain that was [reserved](Self::reserve_chain) cost `tokens` in the end, in every bucket. It happens once, however
    /// often it is asked for: after an error, ask again.
    ///
    /// # Panics
    /// If the chain is [empty](Chain::is_empty).
    pub async fn settle_chain(
        &self,
        chain: &Chain,
        marker: ReservationMarker,
        tokens: impl Into<Amount> + Send,
    ) -> Result<Settled, StoreError> {
        let actual = Cost::saturating(tokens);
        let charges = chain.charges_at(BucketCharge::cost);
        let mut settled = Settled { already: true, ..Settled::default() };
        let mut limits: Vec<Option<LimitStatus>> = vec![None; charges.len()];
        while let Some(next) = limits.iter().position(Option::is_none) {
            let key = charges[next].key();
            let places: Vec<usize> = (0..charges.len()).filter(|&at| charges[at].key() == key).collect();
            let own = Charges::distinct(places.iter().map(|&at| charges[at].clone()));
            let own = own.expect("a part of a chain is a chain");
            let done = self.settle_key(&own, marker, actual).await?;
            settled.already &= !done.settled;
            settled.uncovered = settled.uncovered.max(done.uncovered);
            let decision = Decision::from_outcome(&own, &done.outcome, DecisionSource::Store);
            for (&at, status) in places.iter().zip(decision.limits()) {
                limits[at] = Some(status.clone());
            }
        }
        settled.decision = Decision::standing(limits.into_iter().flatten());
        Ok(settled)
    }

    /// Settles the charges of one key, in one step of the store.
    async fn settle_key(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        let inner = &self.inner;
        let question = inner.question(charges);
        let answer = inner.in_time(inner.deadline, inner.store.settle(charges, marker, actual)).await;
        question.changed(answer.as_ref().map(|done| &done.outcome));
        answer
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

    /// Makes it cost `tokens` in the end. Less is given back; more is charged, into debt if need be. It happens once: after an
    /// error it can be asked for again, after a success [`already`](Settled::already) says that nothing was changed.
    pub async fn settle(&mut self, tokens: impl Into<Amount> + Send) -> Result<Settled, StoreError> {
        if !self.open {
            return Ok(Settled { already: true, ..Settled::default() });
        }
        let settled = self.limiter.settle_chain(&self.chain, self.marker, tokens).await?;
        self.open = false;
        Ok(settled)
    }
}

impl<S: Store + 'static> Drop for Reservation<S> {
    fn drop(&mut self) {
        if !(self.cancel_on_drop && self.open) {
            return;
        }
        let Some(spawner) = self.limiter.inner.runtime.spawner() else { return };
        let (limiter, marker) = (self.limiter.clone(), self.marker);
        let chain = std::mem::replace(&mut self.chain, Chain::new(None));
        spawner.spawn(async move {
            // If the store does not answer, the reservation stays charged, as if the process had ended.
            let _settled = limiter.settle_chain(&chain, marker, 0).await;
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
