//! The store behind the server: embedded, or in Redis.

use std::time::Duration;

use futures_util::FutureExt;
use spile_core::{Answer, Charges, HeldPermit, Inspect, Kept, Operation, Reply, Store, StoreError, StoreExt};
use spile_memory::Usage;
use spile_observe::TimedStore;
use spile_observe::trace::{self, SpanKind};
use spile_redis::{RedisBuildError, RedisStore, Stats};

use super::Clocks;
use crate::config::{Embedded, OpenStore, StoreConfig, StoreUrl, embedded_of, redis_of};
use crate::observe::metrics::Telemetry;

/// One of the stores, with every call timed and traced.
pub(crate) struct ServerStore(TimedStore<OpenStore>);

impl ServerStore {
    /// Opens the store that the configuration names. This process's clock is the clock of the embedded store, and of Redis in tests.
    /// `kept` is the restored embedded store, if there is one.
    pub(crate) fn new(
        config: &StoreConfig,
        clocks: &Clocks,
        kept: Option<Embedded>,
        telemetry: &Telemetry,
    ) -> Result<Self, RedisBuildError> {
        let store = config.open(clocks.buckets.clone(), clocks.decide_everywhere, kept)?;
        let timed = if telemetry.is_enabled() { TimedStore::every_call } else { TimedStore::untimed };
        Ok(Self(timed(store, telemetry.watch().clone())))
    }

    /// `None` if the store is not in Redis.
    pub(crate) const fn redis(&self) -> Option<&RedisStore> {
        redis_of(self.0.inner())
    }

    /// `None` if the store is not in Redis.
    pub(crate) fn redis_stats(&self) -> Option<Stats> {
        self.redis().map(RedisStore::stats)
    }

    /// The usage of the embedded store. Zero if buckets are stored elsewhere.
    pub(crate) fn embedded_usage(&self) -> Usage {
        embedded_of(self.0.inner()).map(|store| store.usage()).unwrap_or_default()
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
        if let (Some(redis), StoreUrl::Redis(url)) = (self.redis(), url) {
            let _elsewhere = redis.renew_credentials(url);
        }
    }

    /// A condition that an operator should look into although the store answers.
    pub(crate) fn warning(&self) -> Option<String> {
        self.redis().and_then(RedisStore::warning)
    }

    fn note(&self, answer: &Result<Reply, StoreError>) {
        if self.redis().is_some() {
            trace::note("db.system.name", || "redis");
        }
        if let Err(why) = answer {
            trace::note_error(|| why.reason().as_str().to_owned());
        }
    }
}

impl Store for ServerStore {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        // An immediate answer cannot be traced, so it is taken only outside a trace.
        if !self.is_shared()
            && trace::current().is_none()
            && let Answer::Now(reply) = self.0.call(operation, charges)
        {
            return Answer::Now(reply);
        }
        let kind = if self.is_shared() { SpanKind::Client } else { SpanKind::Internal };
        // A future that is dropped before it is polled leaves no span.
        Answer::Later(async move {
            let call = self.0.ask(operation, charges).inspect(|answer| self.note(answer));
            trace::span(span_name(&operation), kind, call).await
        })
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }
}

impl Inspect for ServerStore {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        self.0.holders(charges).await
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        self.0.kept(charges).await
    }
}

const fn span_name(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Spend | Operation::SpendUpTo | Operation::Charge | Operation::Reserve(_) => "store spend",
        Operation::Peek => "store peek",
        Operation::Refund { .. } | Operation::Settle(..) => "store refund",
        Operation::Permit(..) => "store permit",
        Operation::Reset => "store reset",
    }
}
