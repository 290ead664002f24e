//! Charges what requests owe, whichever protocol they came by.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use futures_util::FutureExt;
use futures_util::future::join_all;
use spile_core::{
    Amount, Clock, Cost, Decision, FailurePolicy, Micros, PermitId, Plan, RefundId, ReservationId, SpendTime,
    Store, StoreError,
};
use spile_limiter::{Ask, ChargeDecision, PermitCounts, PermitStats, RateLimiter, SettleError, Settled};
use spile_memory::Usage;
use spile_observe::{KeyDenial, Watch, trace};
use spile_policy::{BucketCharge, Chain, Owed, Policy, identity};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Clocks;
use super::ServerStore;
use crate::config::{Clients, Config, ForwardAuth};
use crate::input::permit_ticket::PresentedPermit;
use crate::secret::Secret;

/// How much longer than the store's own deadline the limiter waits, so that the store gets to say why.
const GRACE: Duration = Duration::from_millis(10);

/// How many charges of batches may be under way to a store across the network at once: enough to keep it busy, and few
/// enough that single questions hardly wait behind them.
const BULK: usize = 512;

/// How long a question of a batch is asked again while this process is too busy to send it.
const BULK_PATIENCE: Duration = Duration::from_secs(1);

/// What a request is read and answered by. One value that is replaced whole, so that no request sees half of a change.
pub(crate) struct InForce {
    /// Plans, rules and tenants.
    pub(crate) policy: Arc<Policy>,
    /// Which proxies are trusted to name the client.
    pub(crate) clients: Clients,
    /// How proxies describe the request that they ask about.
    pub(crate) forward_auth: ForwardAuth,
    /// The password of the Redis protocol, if there is one.
    pub(crate) resp_password: Option<Secret>,
}

impl From<&Config> for InForce {
    fn from(config: &Config) -> Self {
        Self {
            policy: Arc::new(config.policy()),
            clients: config.clients.clone(),
            forward_auth: config.forward_auth,
            resp_password: config.resp.password.clone(),
        }
    }
}

/// The limiter with the policy in force: what every door asks.
pub(crate) struct Decider {
    limiter: RateLimiter<ServerStore>,
    in_force: ArcSwap<InForce>,
    metrics: Watch,
    wall: Arc<dyn Clock>,
    bulk: Semaphore,
}

impl Decider {
    pub(crate) fn new(config: &Config, store: ServerStore, clocks: Clocks, metrics: Watch) -> Self {
        let in_force = InForce::from(config);
        expect(&in_force.policy, &metrics);
        let mut limiter = RateLimiter::builder()
            .store(store)
            .deadline(config.store.timeout + GRACE)
            .on_failure(config.store.on_failure)
            .fail_closed_retry_after(config.store.fail_closed_retry_after)
            .deny_cache(config.store.deny_cache)
            .lease_share(config.store.lease_share)
            .replicas(config.store.replicas)
            .max_local_keys(config.store.max_keys)
            .clock(clocks.buckets);
        if config.observe.enabled {
            limiter = limiter.observer(metrics.clone());
        }
        let in_force = ArcSwap::from_pointee(in_force);
        Self { limiter: limiter.build(), in_force, metrics, wall: clocks.wall, bulk: Semaphore::new(BULK) }
    }

    /// What is in force at this moment.
    pub(crate) fn in_force(&self) -> Guard<Arc<InForce>> {
        self.in_force.load()
    }

    /// The policy of this moment.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.in_force().policy)
    }

    /// The limiter behind it.
    pub(crate) fn limiter(&self) -> RateLimiter<ServerStore> {
        self.limiter.clone()
    }

    /// Puts this configuration in place of the one in force, in one step.
    pub(crate) fn replace(&self, config: &Config) {
        let in_force = InForce::from(config);
        expect(&in_force.policy, &self.metrics);
        self.store().renew_credentials(&config.store.url);
        self.in_force.store(Arc::new(in_force));
    }

    /// A key as logs show it: hashed, as on the dashboard.
    pub(crate) fn mask(&self, key: &str) -> String {
        identity(key).map(|key| self.metrics.mask(key.as_key())).unwrap_or_default()
    }

    /// The last denials of a key that this instance has seen.
    pub(crate) fn denials_of(&self, key: &str) -> Vec<KeyDenial> {
        identity(key).map(|key| self.metrics.denials_of(key.as_key())).unwrap_or_default()
    }

    /// The store behind the limiter.
    pub(crate) fn store(&self) -> &ServerStore {
        self.limiter.store()
    }

    /// The buckets that this process holds: those of the embedded store, and those of the policy `local`.
    pub(crate) fn embedded_usage(&self) -> Usage {
        self.store().embedded_usage() + self.limiter.local_usage()
    }

    /// The permits that this process took, of every limit of the policy that is a concurrency.
    pub(crate) fn permit_stats(&self) -> PermitStats {
        let mut stats = self.limiter.permit_stats();
        let policy = self.policy();
        for limit in policy.plans().into_iter().flat_map(Plan::limits) {
            if limit.limit().is_concurrency() && !stats.contains_key(limit.name()) {
                stats.insert(limit.name().clone(), PermitCounts::default());
            }
        }
        stats
    }

    /// True if every request would be refused: the store does not answer or does not write, and the failure policy is
    /// `deny`.
    pub(crate) fn refuses_all(&self) -> bool {
        self.in_force().policy.on_failure() == FailurePolicy::Deny && self.store().trouble().is_some()
    }

    /// The time of the wall clock.
    pub(crate) fn wall_now(&self) -> Micros {
        self.wall.now()
    }

    /// Spends, or only looks if nothing is charged. What nothing limits is allowed.
    pub(crate) async fn allow_chain(&self, chain: Option<&Chain>) -> Decision {
        let Some(chain) = chain else { return self.unlimited() };
        self.allow_ask(chain, Ask::from(chain)).await
    }

    /// The same for a question of a batch, when it is its turn.
    pub(crate) async fn allow_in_turn(&self, chain: Option<&Chain>) -> Decision {
        let Some(chain) = chain else { return self.unlimited() };
        let ask = Ask::from(chain).retry_overloaded_for(BULK_PATIENCE);
        self.in_turn(Some(chain), self.allow_ask(chain, ask)).await
    }

    /// Asks a question of a batch when it is its turn: its time begins then. All batches take turns.
    pub(crate) async fn in_turn<T>(&self, chain: Option<&Chain>, question: impl Future<Output = T>) -> T {
        if !self.limiter.store().is_shared() {
            return question.await;
        }
        let charges = chain.map_or(0, |chain| chain.buckets().len());
        // The semaphore is never closed, so this never fails.
        let _turn = self.bulk.acquire_many(u32::try_from(charges.min(BULK)).unwrap_or(u32::MAX)).await;
        question.await
    }

    /// The same as [`allow_chain`](Self::allow_chain), with no more time for the store than this.
    pub(crate) async fn allow_within(&self, chain: &Chain, deadline: Duration) -> Decision {
        self.allow_ask(chain, Ask::from(chain).within(deadline)).await
    }

    /// Charges all that a request owes: the enforced chain and, if that allows the request, each of those in shadow mode
    /// by itself. `None` if nothing is owed.
    pub(crate) async fn allow(&self, owed: &Owed) -> Option<Decision> {
        let ends_at = (!owed.shadow.is_empty()).then(|| Instant::now() + self.limiter.deadline());
        let enforced = match &owed.enforced {
            Some(chain) => Some(self.allow_chain(Some(chain)).await),
            None => None,
        };
        let Some(ends_at) = ends_at.filter(|_| enforced.as_ref().is_none_or(Decision::allowed)) else {
            return enforced;
        };
        let left = ends_at.duration_since(Instant::now());
        let watched = join_all(owed.shadow.iter().map(|chain| self.allow_within(chain, left))).await;
        enforced.or_else(|| watched.into_iter().next_back())
    }

    /// Answers as [`allow_chain`](Self::allow_chain) would, and spends nothing.
    pub(crate) async fn peek(&self, chain: Option<&Chain>) -> Decision {
        match chain {
            Some(chain) => self.limiter.peek_charges(chain).await,
            None => self.unlimited(),
        }
    }

    /// Gives back the cost of the chain, which was spent at this time.
    pub(crate) async fn refund(&self, chain: &Chain, spent: SpendTime) -> Result<Decision, StoreError> {
        self.limiter.refund_charges(chain.charges_at(BucketCharge::cost), spent).await
    }

    /// The same, once for each id if there is one. Also returns whether it was given now.
    pub(crate) async fn refund_once(
        &self,
        chain: Option<&Chain>,
        spent: SpendTime,
        id: Option<RefundId<'_>>,
    ) -> Result<(Decision, bool), StoreError> {
        let Some(chain) = chain else { return Ok((self.unlimited(), true)) };
        let Some(id) = id else { return Ok((self.refund(chain, spent).await?, true)) };
        let charges = chain.charges_at(BucketCharge::cost);
        let refunded = self.limiter.refund_charges_once(charges, spent, id).await?;
        Ok((refunded.decision, refunded.given))
    }

    /// Charges what has been used: these tokens, or what the chain says.
    pub(crate) async fn charge(
        &self,
        chain: Option<&Chain>,
        tokens: Option<Cost>,
    ) -> Result<ChargeDecision, StoreError> {
        let Some(chain) = chain else { return Ok(ChargeDecision::new(Amount::ZERO, self.unlimited())) };
        let cost = |bucket: &BucketCharge| tokens.map_or(bucket.cost(), Cost::amount);
        self.limiter.charge_late(Ask::for_chain(chain, chain.late_charges(cost))).await
    }

    /// Charges what has been used by the chain, with no more time for the store than this.
    pub(crate) async fn charge_within(
        &self,
        chain: &Chain,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        let charges = chain.late_charges(BucketCharge::cost);
        Ok(self.limiter.charge_late(Ask::for_chain(chain, charges).within(deadline)).await?.decision)
    }

    /// Spends a chain so that it can be settled by the same id.
    pub(crate) async fn reserve(&self, chain: Option<&Chain>, id: ReservationId) -> Decision {
        match chain {
            Some(chain) => self.limiter.reserve_chain(chain, id).await,
            None => self.unlimited(),
        }
    }

    /// Makes a reserved chain cost this much in the end, once. Also returns the state of its limits.
    pub(crate) async fn settle(
        &self,
        chain: Option<&Chain>,
        id: ReservationId,
        cost: impl Fn(&BucketCharge) -> Amount + Send + Sync,
    ) -> Result<(Settled, Decision), SettleError> {
        let settled = match chain {
            Some(chain) => self.limiter.settle_chain(chain, id, cost).await?,
            None => Settled::nothing(),
        };
        let decision = settled.decision.clone().unwrap_or_else(|| self.unlimited());
        Ok((settled, decision))
    }

    /// Spends a chain and takes a permit of each of its concurrencies, in one step. There is no permit if it is denied, or if
    /// none of its limits is a concurrency.
    pub(crate) async fn acquire(&self, chain: Option<&Chain>, holder: &str) -> (Decision, Option<PermitId>) {
        match chain {
            Some(chain) if chain.first_permit().is_some() && chain.never_passes().is_none() => {
                let acquired =
                    self.limiter.acquire_unkept(Ask::from(chain), holder).inspect(|(decision, _)| {
                        note(decision);
                    });
                trace::span("decision", trace::SpanKind::Internal, acquired).await
            }
            chain => (self.allow_chain(chain).await, None),
        }
    }

    /// Keeps a permit for another hold time, and tells that. `None` if it is not held any more.
    pub(crate) async fn renew(&self, permit: &PresentedPermit) -> Result<Option<Duration>, StoreError> {
        let PresentedPermit { id, degraded, chain } = permit;
        let renewed = self.limiter.renew_permit(chain, id, *degraded).await?;
        Ok(chain.hold().filter(|_| renewed))
    }

    /// Ends a permit. False if it was not held any more.
    pub(crate) async fn release(&self, permit: &PresentedPermit) -> Result<bool, StoreError> {
        self.limiter.release_permit(&permit.chain, &permit.id).await
    }

    /// Makes buckets full again.
    pub(crate) async fn reset(&self, chain: &Chain) -> Result<(), StoreError> {
        self.limiter.reset_charges(chain.charges()).await
    }

    fn unlimited(&self) -> Decision {
        Decision::unlimited(self.wall_now())
    }

    /// Asks the limiter, without a future if the store answers at once. A future is boxed: inline, it would make those of all
    /// requests larger to move, also of those that need none.
    async fn allow_ask(&self, chain: &Chain, ask: Ask<'_>) -> Decision {
        if !chain.is_peek()
            && !self.limiter.store().is_shared()
            && let Some(decision) = self.limiter.try_allow_charges(&ask)
        {
            return decision;
        }
        Box::pin(self.wait_for(chain, ask)).await
    }

    async fn wait_for(&self, chain: &Chain, ask: Ask<'_>) -> Decision {
        if chain.is_peek() {
            return self.limiter.peek_charges(ask).await;
        }
        let decided = self.limiter.allow_charges(ask).inspect(note);
        trace::span("decision", trace::SpanKind::Internal, decided).await
    }
}

/// Notes in the span what was decided.
fn note(decision: &Decision) {
    trace::note("spile.reason", || decision.reason().as_str());
    trace::note("spile.limit", || decision.binding().name().to_string());
}

/// Gives every configured rule its series before names that callers make up can use up the bound.
fn expect(policy: &Policy, metrics: &Watch) {
    for (rule, limit) in policy.rule_limits() {
        metrics.register_rule(rule, &limit);
    }
}
