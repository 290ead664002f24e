//! The state that all workers of a gateway share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use spile_core::Clock;
use spile_listener::{Bounds, GuessLimiter, Listener, RequestMetrics};
use spile_observe::trace::Tracer;
use spile_policy::Policy;
use tokio::sync::watch;

use super::{ActiveConfig, GatewayBuildError, Settings};
use crate::access_log::AccessLog;
use crate::limit::{DetachedExchanges, RateLimits};
use crate::refusal::RefusalLog;
use crate::upstream::Connector;

/// The state that all workers share, from when the gateway is built until its last clone is dropped.
pub(crate) struct GatewayState<S> {
    pub(super) configs: Mutex<Configs>,
    /// Notified when routes change.
    pub(super) route_changes: watch::Sender<()>,
    pub(crate) limits: RateLimits<S>,
    pub(crate) connector: Connector,
    pub(crate) bounds: Bounds,
    pub(crate) listener: Listener,
    /// Exchanges that continue without their client.
    pub(crate) detached: Arc<DetachedExchanges>,
    pub(crate) guesses: GuessLimiter,
    pub(crate) metrics: RequestMetrics,
    pub(crate) clock: Arc<dyn Clock>,
    /// `None` if there is no access log.
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) refusal_log: RefusalLog,
    /// `None` if requests are not traced.
    pub(crate) tracer: Option<Tracer>,
    /// Whether a worker runs the background tasks. Only one of them does.
    pub(crate) has_background_tasks: AtomicBool,
}

/// The configuration in force, and the copy of it that each worker reads.
pub(super) struct Configs {
    current: ActiveConfig,
    workers: Vec<Weak<ArcSwap<ActiveConfig>>>,
}

impl<S> GatewayState<S> {
    pub(crate) fn config(&self) -> ActiveConfig {
        self.configs.lock().current.clone()
    }

    /// The configuration of a new worker. It is replaced whenever the gateway's is.
    pub(crate) fn add_worker(&self) -> Arc<ArcSwap<ActiveConfig>> {
        let mut configs = self.configs.lock();
        let config = Arc::new(ArcSwap::from_pointee(configs.current.for_worker(None)));
        configs.workers.push(Arc::downgrade(&config));
        config
    }

    /// Replaces the settings, or changes nothing if they are wrong. Requests in flight keep the old ones.
    pub(crate) fn replace(&self, settings: Settings) -> Result<(), GatewayBuildError> {
        let mut configs = self.configs.lock();
        let new = ActiveConfig::new(settings, Some(&configs.current))?;
        configs.update_workers(|before| new.for_worker(Some(before)));
        configs.current = new;
        self.limits.limiter.limits_changed();
        self.route_changes.send_replace(());
        Ok(())
    }

    /// Replaces the policy. Health checks and the resolver are not notified, because the upstreams stay the same.
    pub(crate) fn replace_policy(&self, policy: &Arc<Policy>) {
        let mut configs = self.configs.lock();
        configs.update_workers(|before| before.with_policy(Arc::clone(policy)));
        configs.current = configs.current.with_policy(Arc::clone(policy));
        self.limits.limiter.limits_changed();
    }

    /// Reads certificates and keys again if their files have changed.
    pub(crate) fn refresh_files(&self) {
        self.listener.refresh_files();
        let config = self.config();
        if let Some(jwt) = &config.auth.jwt {
            jwt.refresh();
        }
        config.table.refresh_files();
    }
}

impl Configs {
    pub(super) fn new(settings: Settings) -> Result<Self, GatewayBuildError> {
        Ok(Self { current: ActiveConfig::new(settings, None)?, workers: Vec::new() })
    }

    /// Replaces the configuration of each worker, and forgets workers that have ended.
    fn update_workers(&mut self, new: impl Fn(&ActiveConfig) -> ActiveConfig) {
        self.workers.retain(|worker| {
            let Some(config) = worker.upgrade() else { return false };
            let new = new(&config.load());
            config.store(Arc::new(new));
            true
        });
    }
}
