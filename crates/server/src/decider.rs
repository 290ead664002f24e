//! Where questions meet the limiter, whatever protocol they came by.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use futures_util::FutureExt;
use spile_core::{Charges, Clock, Decision, FailurePolicy, Key, Micros, Plan, PlanRegistry, StoreError};
use spile_limiter::RateLimiter;
use spile_observe::{Watch, trace};

use crate::clock::Clocks;
use crate::config::Config;
use crate::policies::Policies;
use crate::question::Question;
use crate::store::AnyStore;

/// How much longer than the store's own deadline the limiter waits, so that the store gets to say why.
const GRACE: Duration = Duration::from_millis(5);

/// Answers questions by the policies of the moment.
pub(crate) struct Decider {
    limiter: RateLimiter<AnyStore>,
    policies: Arc<ArcSwap<Policies>>,
    metrics: Watch,
    wall: Arc<dyn Clock>,
}

impl Decider {
    pub(crate) fn new(config: &Config, store: AnyStore, clocks: Clocks, metrics: Watch) -> Self {
        let policies = Policies::from(config);
        expect(&policies, &metrics);
        let policies = Arc::new(ArcSwap::from_pointee(policies));
        let mut limiter = RateLimiter::builder()
            .store(store)
            .registry(LivePlans(Arc::clone(&policies)))
            .deadline(config.store.timeout + GRACE)
            .on_failure(config.store.on_failure)
            .fail_closed_retry_after(config.store.fail_closed_retry_after)
            .replicas(config.store.replicas)
            .clock(clocks.buckets);
        if config.observe.enabled {
            limiter = limiter.observer(metrics.clone());
        }
        let limiter = limiter.build();
        Self { limiter, policies, metrics, wall: clocks.wall }
    }

    /// The policies of this moment. A question borrows from them, and so holds them until it is answered.
    pub(crate) fn policies(&self) -> Guard<Arc<Policies>> {
        self.policies.load()
    }

    /// The limiter behind it, which knows the plans of the moment.
    pub(crate) fn limiter(&self) -> RateLimiter<AnyStore> {
        self.limiter.clone()
    }

    /// Puts the policies of this configuration in place of all there are, in one step. They are also for whoever else
    /// works by them.
    pub(crate) fn replace(&self, config: &Config) -> Arc<Policies> {
        let policies = Arc::new(Policies::from(config));
        expect(&policies, &self.metrics);
        self.policies.store(Arc::clone(&policies));
        policies
    }

    /// Forgets buckets that an operator wants full again.
    pub(crate) async fn forget(&self, charges: Charges<'_>) -> Result<(), StoreError> {
        self.limiter.forget(charges).await
    }

    /// A key as logs show it: hashed, as on the dashboard.
    pub(crate) fn mask(&self, key: &str) -> String {
        Key::new(key).map(|key| self.metrics.mask(key)).unwrap_or_default()
    }

    /// The store that questions end up at.
    pub(crate) fn store(&self) -> &AnyStore {
        self.limiter.store()
    }

    /// Whether requests would be refused for no fault of theirs: the store is out of reach and the policy is to
    /// refuse without it.
    pub(crate) fn refuses_all(&self) -> bool {
        self.policies().on_failure == FailurePolicy::Deny && self.store().trouble().is_some()
    }

    /// What people's clocks say now.
    pub(crate) fn wall_now(&self) -> Micros {
        self.wall.now()
    }

    /// Spends, or only looks where the question costs nothing.
    pub(crate) async fn check(&self, question: Question<'_>) -> Decision {
        if question.is_peek() {
            return self.peek(question).await;
        }
        let decided = self.limiter.decide(question.into_ask()).inspect(|decision| {
            trace::note("spile.reason", || decision.reason().as_str().to_owned());
            trace::note("spile.limit", || decision.binding().name().to_string());
        });
        trace::span("decision", decided).await
    }

    /// Answers as [`check`](Self::check) would, and spends nothing.
    pub(crate) async fn peek(&self, question: Question<'_>) -> Decision {
        self.limiter.look(question.into_ask()).await
    }

    /// Looks at buckets that an operator asks for.
    pub(crate) async fn look(&self, charges: Charges<'_>) -> Decision {
        self.limiter.look(charges).await
    }

    /// Gives back what the question would cost.
    pub(crate) async fn refund(&self, question: Question<'_>) -> Result<Decision, StoreError> {
        self.limiter.give_back(question.into_charges()).await
    }
}

/// The plans of the moment, as the limiter asks for them.
struct LivePlans(Arc<ArcSwap<Policies>>);

impl PlanRegistry for LivePlans {
    fn plan(&self, name: &str) -> Option<Plan> {
        self.0.load().plan(name).cloned()
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        self.0.load().plan(name).map(visit).is_some()
    }
}

/// Gives every configured rule its series before callers' inventions can use up the bound.
fn expect(policies: &Policies, metrics: &Watch) {
    for (rule, limit) in policies.rule_limits() {
        metrics.expect(rule, limit);
    }
}
