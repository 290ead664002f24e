//! Where questions meet the limiter, whatever protocol they came by.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use spile_core::{Clock, Decision, FailurePolicy, Micros, StoreError};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;

use crate::config::Config;
use crate::metrics::DecisionMetrics;
use crate::policies::Policies;
use crate::question::Question;

/// The store behind the server, on a clock that tests can move.
pub(crate) type ServerStore = MemoryStore<Arc<dyn Clock>>;

/// Answers questions by the policies of the moment.
pub(crate) struct Decider {
    limiter: RateLimiter<ServerStore>,
    policies: ArcSwap<Policies>,
    on_failure: FailurePolicy,
    wall: Arc<dyn Clock>,
}

impl Decider {
    pub(crate) fn new(
        config: &Config,
        clock: Arc<dyn Clock>,
        wall: Arc<dyn Clock>,
        metrics: DecisionMetrics,
    ) -> Self {
        let policies = Policies::from(config);
        for (rule, limit) in policies.rule_limits() {
            metrics.expect(rule, limit);
        }
        let limiter = RateLimiter::builder()
            .store(MemoryStore::builder().clock(Arc::clone(&clock)).build())
            .on_failure(config.on_failure)
            .clock(clock)
            .observer(metrics)
            .build();
        Self { limiter, policies: ArcSwap::from_pointee(policies), on_failure: config.on_failure, wall }
    }

    /// The policies of this moment. Not to be held across an await.
    pub(crate) fn policies(&self) -> Guard<Arc<Policies>> {
        self.policies.load()
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
        self.limiter.decide(question.into_ask(self.on_failure)).await
    }

    /// Answers as [`check`](Self::check) would, and spends nothing.
    pub(crate) async fn peek(&self, question: Question<'_>) -> Decision {
        self.limiter.look(question.into_charges()).await
    }

    /// Gives back what the question would cost.
    pub(crate) async fn refund(&self, question: Question<'_>) -> Result<Decision, StoreError> {
        self.limiter.give_back(question.into_charges()).await
    }
}
