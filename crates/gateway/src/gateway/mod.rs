//! The gateway as a whole: how it is built, configured and served, and how it handles one request.

mod active_config;
mod builder;
mod found_route;
pub(crate) mod metrics;
mod priced;
mod request;
mod serve;
mod settings;
mod settle;
mod state;
mod trace;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use spile_core::Store;
use spile_limiter::RateLimiter;
use spile_policy::{CleanPath, Policy};
use tokio::net::TcpListener;

pub use builder::{GatewayBuildError, GatewayBuilder};
pub use found_route::FoundRoute;
pub use settings::Settings;

use active_config::ActiveConfig;
use state::GatewayState;

/// A reverse proxy that authenticates, limits and forwards. Cheap to clone; clones share routes, limits and the state of upstreams.
///
/// Each call of [`serve`](Self::serve) has separate upstream connections. If it is served on one single-threaded
/// runtime per core, each with a clone of the listening socket, requests never move between threads.
pub struct Gateway<S>(Arc<GatewayState<S>>);

impl Gateway<()> {
    /// Starts to build a gateway that asks this limiter.
    pub fn builder<S: Store>(limiter: RateLimiter<S>) -> GatewayBuilder<S> {
        GatewayBuilder::new(limiter)
    }
}

impl<S: Store + 'static> Gateway<S> {
    /// Serves connections to `listener` until `shutdown` resolves, then lets requests in flight finish.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        serve::serve(Arc::clone(&self.0), listener, shutdown).await;
    }
}

impl<S> Gateway<S> {
    /// Replaces the settings in one step, for all clones, or changes nothing if they are wrong.
    ///
    /// Requests in flight keep the old settings. For upstreams that stay, connections and health are kept.
    pub fn replace(&self, settings: Settings) -> Result<(), GatewayBuildError> {
        self.0.replace(settings)
    }

    /// Replaces the policy in one step, for all clones. Cheap enough for every change to a tenant: routes stay as they
    /// are.
    pub fn replace_policy(&self, policy: impl Into<Arc<Policy>>) {
        self.0.replace_policy(&policy.into());
    }

    /// The route for a request for this host and this path, as the gateway finds it now. The host is in lower case and
    /// without a port. `None` if no route is for it: the gateway answers such a request with 404.
    pub fn find_route(&self, host: &str, path: &CleanPath) -> Option<FoundRoute> {
        let config = self.0.config();
        let route = Arc::clone(config.table.route_for(host, path)?);
        Some(FoundRoute::new(route, config.auth.policy, self.0.clock.now()))
    }

    /// Reads certificates and keys again, without waiting for the next second. Blocks while it reads.
    pub fn refresh_files(&self) {
        self.0.refresh_files();
    }

    /// Opens the file of the access log again by its name. Call it after the file was renamed, as `logrotate` does.
    pub fn reopen_access_log(&self) {
        if let Some(log) = &self.0.access_log {
            log.reopen();
        }
    }

    /// Waits until all lines of the access log so far are written, but no longer than this. Blocks.
    pub fn flush_access_log(&self, within: Duration) {
        if let Some(log) = &self.0.access_log {
            log.flush(within);
        }
    }

    /// The number of connections of clients that are open.
    pub fn connections(&self) -> usize {
        self.0.listener.connections()
    }
}

impl<S> Clone for Gateway<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> std::fmt::Debug for Gateway<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("routes", &self.0.config().table.routes().len())
            .finish_non_exhaustive()
    }
}
