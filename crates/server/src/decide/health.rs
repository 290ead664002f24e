//! The health of the store and the permits of this instance, as dashboard, webhooks and metrics ask for them.

use std::sync::Arc;

use spile_core::{LimitName, Plan};
use spile_limiter::PermitCounts;
use spile_observe::{HealthProbe, LimitPermits, PermitFigures, PermitProbe, StoreHealth};
use spile_redis::RedisStore;

use super::Decider;
use crate::config::Config;

/// Returns a probe of the decider's store. It holds a weak reference, because the decider's limiter owns the watch that probes.
pub(crate) fn of_store(decider: &Arc<Decider>, config: &Config) -> HealthProbe {
    let (decider, store) = (Arc::downgrade(decider), config.store.url.to_string());
    let timeout = config.store.timeout;
    Arc::new(move || {
        let store = store.clone();
        let Some(decider) = decider.upgrade() else { return StoreHealth { store, ..StoreHealth::default() } };
        let stats = decider.store().redis_stats().unwrap_or_default();
        StoreHealth {
            store,
            on_failure: decider.policy().on_failure().to_string(),
            nodes: stats.nodes,
            breakers_open: stats.breakers_open,
            waiting: stats.waiting,
            late_by_node: decider.store().redis().map(RedisStore::late_by_node).unwrap_or_default(),
            timeout_ms: timeout.as_millis().try_into().unwrap_or(u64::MAX),
            trouble: decider.store().trouble(),
            warning: decider.store().warning(),
        }
    })
}

/// The number of keys shown, those that hold most permits.
const TOP: usize = 10;

/// Returns a probe of this instance's permits. It holds a weak reference, too.
pub(crate) fn of_permits(decider: &Arc<Decider>) -> PermitProbe {
    let decider = Arc::downgrade(decider);
    Arc::new(move || {
        let Some(decider) = decider.upgrade() else { return PermitFigures::default() };
        let policy = decider.policy();
        let capacity = |name: &LimitName| {
            let limits = policy.plans().into_iter().flat_map(Plan::limits);
            limits
                .into_iter()
                .find(|limit| limit.name() == name)
                .map(|limit| limit.limit().capacity().whole_tokens())
        };
        let limits = decider.permit_stats().into_iter().filter_map(|(name, counts)| {
            let of = capacity(&name)?;
            let PermitCounts { held, acquired, released, lost, .. } = counts;
            Some(LimitPermits { limit: name.to_string(), of, held, acquired, released, lost })
        });
        PermitFigures { limits: limits.collect(), holding_most: decider.limiter().holding_most(TOP) }
    })
}
