//! Charges what requests owe, for every protocol.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use futures_util::FutureExt;
use spile_core::{
    Amount, Clock, Cost, Decision, FailurePolicy, Micros, PermitId, Plan, RefundId, ReservationId, SpendTime,
    Store, StoreError,
};
use spile_limiter::{
    Ask, AskedCharges, PermitCounts, PermitStats, RateLimiter, Ruling, SettleError, Settled,
};
use spile_memory::Usage;
use spile_observe::{KeyDenial, Watch, trace};
use spile_policy::{BucketCharge, Chain, Enforced, Owed, Policy, identity};
use tokio::sync::Semaphore;

use super::Clocks;
use super::ServerStore;
use crate::config::{Clients, Config, ForwardAuth};
use crate::input::permit_ticket::PresentedPermit;
use crate::secret::Secret;

/// How much longer than the store's own deadline the limiter waits, so that the store can report its error.
const GRACE: Duration = Duration::from_millis(10);

/// The most charges of batches in flight to a remote store: enough to keep it busy, and few enough that single questions hardly wait
/// behind them.
const BULK: usize = 512;

/// How long a question of a batch is retried while this process is too busy to send it.
const BULK_PATIENCE: Duration = Duration::from_secs(1);

/// The settings that apply to a request. They are replaced as one value, so that no request sees half of a change.
pub(crate) struct ActivePolicy {
    /// Plans, rules and tenants.
    pub(crate) policy: Arc<Policy>,
    /// Which proxies are trusted to name the client.
    pub(crate) clients: Clients,
    /// How proxies describe the request that they ask about.
    pub(crate) forward_auth: ForwardAuth,
    /// The password of the Redis protocol, if there is one.
    pub(crate) resp_password: Option<Secret>,
}

impl From<&Config> for ActivePolicy {
    fn from(config: &Config) -> Self {
        Self {
            policy: Arc::new(config.policy()),
            clients: config.clients.clone(),
            forward_auth: config.forward_auth,
            resp_password: config.resp.password.clone(),
        }
    }
}

/// The limiter with the policy in force, which every door asks.
pub(crate) struct Decider {
    limiter: RateLimiter<ServerStore>,
    in_force: ArcSwap<ActivePolicy>,
    metrics: Watch,
    wall: Arc<dyn Clock>,
    bulk: Semaphore,
}

impl Decider {
    pub(crate) fn new(config: &Config, store: ServerStore, clocks: Clocks, metrics: Watch) -> Self {
        let in_force = ActivePolicy::from(config);
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

    /// The settings in force.
    pub(crate) fn in_force(&self) -> Guard<Arc<ActivePolicy>> {
        self.in_force.load()
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.in_force().policy)
    }

    /// The limiter behind it.
    pub(crate) fn limiter(&self) -> RateLimiter<ServerStore> {
        self.limiter.clone()
    }

    /// Replaces the configuration in force by this one, in one step.
    pub(crate) fn replace(&self, config: &Config) {
        let in_force = ActivePolicy::from(config);
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

    /// Decides what a request owes.
    pub(crate) async fn allow(&self, owed: &Owed) -> Ruling {
        self.decide(asked(owed)).await
    }

    /// Decides a question of a batch when it is its turn.
    pub(crate) async fn allow_in_turn(&self, owed: &Owed) -> Ruling {
        let decided = self.decide(asked(owed).retry_overloaded_for(BULK_PATIENCE));
        self.in_turn(owed.bucket_count(), decided).await
    }

    /// Asks a question of a batch about this many buckets when it is its turn, and starts its timeout then. All batches take turns.
    pub(crate) async fn in_turn<T>(&self, buckets: usize, question: impl Future<Output = T>) -> T {
        if !self.limiter.store().is_shared() {
            return question.await;
        }
        // The semaphore is never closed, so this never fails.
        let _turn = self.bulk.acquire_many(u32::try_from(buckets.min(BULK)).unwrap_or(u32::MAX)).await;
        question.await
    }

    /// Answers as [`allow`](Self::allow) would, and spends nothing.
    pub(crate) async fn peek(&self, owed: &Owed) -> Ruling {
        self.limiter.decide(Ask::from(owed).peeking()).await
    }

    /// Peeks at one chain.
    pub(crate) async fn peek_chain(&self, chain: &Chain) -> Decision {
        self.limiter.peek_charges(chain).await
    }

    /// Decides a single chain of Envoy's within this deadline.
    pub(crate) async fn allow_within(&self, chain: &Chain, deadline: Duration) -> Option<Decision> {
        let ask = Ask::from(chain).within(deadline);
        self.decide(if chain.is_peek() { ask.peeking() } else { ask }).await.into_decision()
    }

    /// Refunds the cost of a chain, which was spent at this time.
    pub(crate) async fn refund_chain(&self, chain: &Chain, spent: SpendTime) -> Result<Decision, StoreError> {
        self.limiter.refund_charges(chain.charges_at(BucketCharge::cost), spent).await
    }

    /// Refunds the cost of a question, once for each id if there is one. Also returns whether it was refunded now.
    pub(crate) async fn refund(
        &self,
        owed: &Owed,
        spent: SpendTime,
        id: Option<RefundId<'_>>,
    ) -> Result<(Ruling, bool), StoreError> {
        let Some(chain) = owed.chains().next() else { return Ok((Ruling::UNLIMITED, true)) };
        let (decision, given) = match id {
            None => (self.refund_chain(chain, spent).await?, true),
            Some(id) => {
                let charges = chain.charges_at(BucketCharge::cost);
                let refunded = self.limiter.refund_charges_once(charges, spent, id).await?;
                (refunded.decision, refunded.given)
            }
        };
        Ok((Ruling::by(chain, decision), given))
    }

    /// Charges usage: these tokens, or the cost of the question. Also returns the amount beyond every debt.
    pub(crate) async fn charge(
        &self,
        owed: &Owed,
        tokens: Option<Cost>,
    ) -> Result<(Ruling, Amount), StoreError> {
        let Some(chain) = owed.chains().next() else { return Ok((Ruling::UNLIMITED, Amount::ZERO)) };
        let cost = |bucket: &BucketCharge| tokens.map_or(bucket.cost(), Cost::amount);
        let charged = self.limiter.charge_late(AskedCharges::of(chain, chain.late_charges(cost))).await?;
        Ok((Ruling::by(chain, charged.decision), charged.uncovered))
    }

    /// Charges usage by a chain of Envoy's within this deadline.
    pub(crate) async fn charge_within(
        &self,
        chain: &Chain,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        let charges = chain.late_charges(BucketCharge::cost);
        Ok(self.limiter.charge_late(AskedCharges::of(chain, charges).within(deadline)).await?.decision)
    }

    /// Spends what a question owes so that it can be settled by the same id.
    pub(crate) async fn reserve(&self, owed: &Owed, id: ReservationId) -> Ruling {
        self.limiter.decide(Ask::from(owed).reserving(id)).await
    }

    /// Settles a reservation at this cost, once. Also returns the state of its limits.
    pub(crate) async fn settle(
        &self,
        owed: &Owed,
        id: ReservationId,
        cost: impl Fn(&BucketCharge) -> Amount + Send + Sync,
    ) -> Result<(Settled, Ruling), SettleError> {
        let Some(chain) = owed.chains().next() else { return Ok((Settled::nothing(), Ruling::UNLIMITED)) };
        let mut settled = self.limiter.settle_chain(chain, id, cost).await?;
        let ruling =
            settled.decision.take().map_or(Ruling::UNLIMITED, |decision| Ruling::by(chain, decision));
        Ok((settled, ruling))
    }

    /// Spends what a question owes and takes a permit of each of its concurrencies, in one step. There is no permit if it is
    /// denied, or if none of its limits is a concurrency.
    pub(crate) async fn acquire(&self, owed: &Owed, holder: &str) -> (Ruling, Option<PermitId>) {
        let takes_permit = owed.chains().any(|chain| chain.first_permit().is_some());
        let ask = if takes_permit { Ask::from(owed) } else { asked(owed) };
        let mut ruling = self.decide(ask.holder(holder).leaving_permit()).await;
        let id = ruling.permit.take().map(|permit| permit.leave());
        (ruling, id)
    }

    /// Renews a permit for another hold time, and returns that time. `None` if it is no longer held.
    pub(crate) async fn renew(&self, permit: &PresentedPermit) -> Result<Option<Duration>, StoreError> {
        let PresentedPermit { id, degraded, chain } = permit;
        let renewed = self.limiter.renew_permit(chain, id, *degraded).await?;
        Ok(chain.hold().filter(|_| renewed))
    }

    /// Releases a permit. Returns false if it was no longer held.
    pub(crate) async fn release(&self, permit: &PresentedPermit) -> Result<bool, StoreError> {
        self.limiter.release_permit(&permit.chain, &permit.id).await
    }

    /// Makes buckets full again.
    pub(crate) async fn reset(&self, chain: &Chain) -> Result<(), StoreError> {
        self.limiter.reset_charges(chain.charges()).await
    }

    /// Asks the limiter, without a future if the store answers at once. A future is boxed: inline, it would enlarge the futures of all
    /// requests, including those that need none.
    async fn decide(&self, ask: Ask<'_>) -> Ruling {
        if let Some(ruling) = self.limiter.decide_now(&ask) {
            return ruling;
        }
        let decided = self.limiter.decide(ask).inspect(note);
        Box::pin(trace::span("decision", trace::SpanKind::Internal, decided)).await
    }
}

/// The question about what a request owes. Charges that spend nothing only peek.
fn asked(owed: &Owed) -> Ask<'_> {
    let ask = Ask::from(owed);
    match &owed.enforced {
        Enforced::Charged(chain) if chain.is_peek() => ask.peeking_enforced(),
        _ => ask,
    }
}

/// Records the decision in the span.
fn note(ruling: &Ruling) {
    trace::note("spile.reason", || ruling.reason());
    if let Some(decision) = ruling.enforced.decision() {
        trace::note("spile.limit", || decision.binding().name().to_string());
    }
}

/// Registers the series of every configured rule before names that callers invent can exhaust the bound.
fn expect(policy: &Policy, metrics: &Watch) {
    for (rule, limit) in policy.rule_limits() {
        metrics.register_rule(rule, &limit);
    }
}
