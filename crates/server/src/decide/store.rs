//! The store behind the server: embedded, or in Redis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use spile_core::{
    ChargeOutcome, Charges, Clock, Cost, EitherStore, HeldPermit, Outcome, PartialOutcome, PermitId,
    PermitStep, RefundId, RefundOutcome, ReservationMarker, SettleOutcome, SlewedClock, Store, StoreError,
};
use spile_memory::{MemoryStore, Usage};
use spile_observe::trace::{self, SpanKind};
use spile_redis::{RedisBuildError, RedisStore, Stats, TimeSource};

use super::Clocks;
use crate::config::{StoreConfig, StoreUrl, TimeOf};
use crate::observe::metrics::{Operation, StoreMetrics};

/// One of the stores, with every call timed.
pub(crate) struct ServerStore {
    kind: StoreKind,
    metrics: StoreMetrics,
}

/// What a store knows of a bucket besides its tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBucket {
    /// Whether there is one. If there is none, it is full.
    pub(crate) exists: bool,
    /// How long the store keeps it after its last write. `None` in the embedded store, which drops buckets that are full.
    pub(crate) ttl: Option<Duration>,
}

/// The embedded store, on whatever clock the server goes by.
pub(crate) type Embedded = Arc<MemoryStore<Arc<dyn Clock>>>;

type StoreKind = EitherStore<Embedded, RedisStore>;

impl ServerStore {
    /// The store that the configuration names. This process's clock tells the time of the embedded store, and of Redis
    /// if a test says so. `kept` is the restored embedded store, if it was restored.
    pub(crate) fn new(
        config: &StoreConfig,
        clocks: &Clocks,
        kept: Option<Embedded>,
        metrics: StoreMetrics,
    ) -> Result<Self, RedisBuildError> {
        let clock = Arc::clone(&clocks.buckets);
        let kind = match config.redis() {
            None => StoreKind::Embedded(kept.unwrap_or_else(|| Arc::new(config.embedded(clock).build()))),
            Some(redis) if clocks.decide_everywhere => {
                StoreKind::Shared(redis.time(TimeSource::Client(clock)).build()?)
            }
            // Instances share these buckets, so the clock of each must keep to the wall clock.
            Some(redis) if config.time == TimeOf::Client => {
                StoreKind::Shared(redis.time(TimeSource::client(SlewedClock::new())).build()?)
            }
            Some(redis) => StoreKind::Shared(redis.build()?),
        };
        Ok(Self { kind, metrics })
    }

    /// `None` if the store is embedded.
    pub(crate) const fn redis(&self) -> Option<&RedisStore> {
        match &self.kind {
            StoreKind::Embedded(_) => None,
            StoreKind::Shared(redis) => Some(redis),
        }
    }

    /// `None` if the store is embedded.
    pub(crate) fn redis_stats(&self) -> Option<Stats> {
        self.redis().map(RedisStore::stats)
    }

    /// What the embedded store holds: nothing if buckets live in Redis.
    pub(crate) fn embedded_usage(&self) -> Usage {
        match &self.kind {
            StoreKind::Embedded(store) => store.usage(),
            StoreKind::Shared(_) => Usage::default(),
        }
    }

    /// Why the store does not answer. `None` while it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.redis().and_then(RedisStore::trouble)
    }

    /// Resolves if the store is out of reach after `patience`. Never resolves for the embedded store.
    pub(crate) async fn out_of_reach(&self, patience: Duration) {
        tokio::time::sleep(patience).await;
        let answers = |stats: Stats| stats.connections > 0 && !stats.is_breaker_open();
        if self.redis_stats().is_none_or(answers) {
            std::future::pending::<()>().await;
        }
    }

    /// Takes the credentials of `url`. A URL that names another store changes nothing: that needs a restart.
    pub(crate) fn renew_credentials(&self, url: &StoreUrl) {
        if let (StoreKind::Shared(redis), StoreUrl::Redis(url)) = (&self.kind, url) {
            let _elsewhere = redis.renew_credentials(url);
        }
    }

    /// A condition that an operator should look into although the store answers.
    pub(crate) fn warning(&self) -> Option<String> {
        self.redis().and_then(RedisStore::warning)
    }

    /// Whether the store has each bucket, and how long it keeps it.
    pub(crate) async fn stored(&self, charges: &Charges<'_>) -> Result<Vec<StoredBucket>, StoreError> {
        Ok(match &self.kind {
            StoreKind::Embedded(store) => {
                let stored = |exists| StoredBucket { exists, ttl: None };
                store.has_buckets(charges).into_iter().map(stored).collect()
            }
            StoreKind::Shared(redis) => {
                let stored = |ttl: Option<Duration>| StoredBucket { exists: ttl.is_some(), ttl };
                redis.times_to_live(charges).await?.into_iter().map(stored).collect()
            }
        })
    }

    async fn timed<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let timing = self.metrics.timing(operation);
        let kind = if self.redis().is_some() { SpanKind::Client } else { SpanKind::Internal };
        let noted = call.inspect(|answer| self.note(answer));
        let answer = trace::span(operation.span(), kind, noted).await;
        timing.end(&answer);
        answer
    }

    fn note<T>(&self, answer: &Result<T, StoreError>) {
        if self.redis().is_some() {
            trace::note("db.system.name", || "redis");
        }
        if let Err(why) = answer {
            trace::note_error(|| why.reason().as_str().to_owned());
        }
    }
}

impl Store for ServerStore {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.timed(Operation::Spend, self.kind.spend(charges)).await
    }

    fn try_spend(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        // Only a future can be traced.
        if !self.answers_at_once() {
            return None;
        }
        let _timing = self.metrics.timing(Operation::Spend);
        self.kind.try_spend(charges)
    }

    fn answers_at_once(&self) -> bool {
        self.kind.answers_at_once() && trace::current().is_none()
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.timed(Operation::Peek, self.kind.peek(charges)).await
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        self.timed(Operation::Spend, self.kind.spend_up_to(charges)).await
    }

    async fn charge(&self, charges: &Charges<'_>) -> Result<ChargeOutcome, StoreError> {
        self.timed(Operation::Spend, self.kind.charge(charges)).await
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.timed(Operation::Refund, self.kind.refund(charges)).await
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        self.timed(Operation::Refund, self.kind.refund_once(charges, id)).await
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        self.timed(Operation::Refund, self.kind.settle(charges, marker, actual)).await
    }

    async fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> Result<Outcome, StoreError> {
        self.timed(Operation::Permit, self.kind.permit(charges, id, step)).await
    }

    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        self.timed(Operation::Peek, self.kind.holders(charges)).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.timed(Operation::Reset, self.kind.reset(charges)).await
    }
}
