//! The health of the store, as dashboard, webhooks and metrics ask for it.

use std::sync::Arc;

use spile_observe::{HealthProbe, StoreHealth};

use super::Decider;
use crate::config::Config;

/// Asks the decider's store. Does not keep the decider alive: its limiter holds the watch that asks.
pub(crate) fn of_store(decider: &Arc<Decider>, config: &Config) -> HealthProbe {
    let (decider, store) = (Arc::downgrade(decider), config.store.url.to_string());
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
            trouble: decider.store().trouble(),
            warning: decider.store().warning(),
        }
    })
}
