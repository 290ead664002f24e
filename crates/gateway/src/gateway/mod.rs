//! The gateway: what is built once, and served on as many runtimes as there are.

use std::sync::Arc;

use spile_core::Store;
use spile_limiter::RateLimiter;
use spile_policy::Policy;
use tokio::net::TcpListener;

mod active_config;
mod builder;
mod live;
pub(crate) mod metrics;
mod roads;
mod serve;
mod settings;
mod state;
mod trace;
mod worker;

pub use builder::{BuildError, Builder};
pub use settings::Settings;

pub(crate) use active_config::Setup;
pub(crate) use live::Live;
pub(crate) use roads::{Roads, Way};
pub(crate) use state::Shared;

/// A reverse proxy that authenticates, limits and forwards. Cheap to clone; clones share routes, limits and what is
/// known of upstreams.
///
/// Each call of [`serve`](Self::serve) has upstream connections of its own. Served on one single-threaded runtime per
/// core, each with a clone of the listening socket, requests never move between threads.
pub struct Gateway<S> {
    shared: Arc<Shared<S>>,
}

impl Gateway<()> {
    /// How to put one together.
    pub fn builder<S: Store>(limiter: RateLimiter<S>) -> Builder<S> {
        Builder::new(limiter)
    }
}

impl<S: Store + 'static> Gateway<S> {
    /// Serves what connects to `listener` until `shutdown` resolves, then lets requests under way finish.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        serve::serve(Arc::clone(&self.shared), listener, shutdown).await;
    }
}

impl<S> Gateway<S> {
    /// Puts these settings in place of those there are, in one step and for all clones, or changes nothing.
    ///
    /// Requests under way end as they began. Connections to upstreams that stay are kept, and so is what is known
    /// of their health.
    pub fn replace(&self, settings: Settings) -> Result<(), BuildError> {
        self.shared.live.replace(settings)
    }

    /// Puts this policy in place of the one there is, in one step and for all clones. Routes stay as they are, and so
    /// does everything about their upstreams: cheap enough for every change to a tenant.
    pub fn replace_policy(&self, policy: impl Into<Arc<Policy>>) {
        self.shared.live.replace_policy(policy.into());
    }

    /// Reads certificates and the keys of tokens again, now; every second they are read anyway. Blocks while it reads.
    pub fn refresh_files(&self) {
        self.shared.refresh_files();
    }
}

impl<S> From<Shared<S>> for Gateway<S> {
    fn from(shared: Shared<S>) -> Self {
        Self { shared: Arc::new(shared) }
    }
}

impl<S> Clone for Gateway<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> std::fmt::Debug for Gateway<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("routes", &self.shared.live.setup().table.routes().len())
            .finish_non_exhaustive()
    }
}
