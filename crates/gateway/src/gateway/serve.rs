//! Serves a listener, and runs the background tasks: health checks, name resolution and reading files again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spile_core::Store;
use spile_listener::Http;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::GatewayState;
use super::worker::{Worker, WorkerService};
use crate::upstream::{SWEEP_INTERVAL, check_forever};

/// How often files are checked for changes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Serves one listener until `shutdown` resolves.
pub(crate) async fn serve<S: Store + 'static>(
    gateway: Arc<GatewayState<S>>,
    socket: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let background = background_tasks(&gateway);
    let worker = Arc::new(Worker::new(Arc::clone(&gateway)));
    let http = Http::new(
        WorkerService { worker: Arc::clone(&worker), place: None },
        gateway.metrics.clone(),
        &gateway.bounds,
    );
    tokio::select! {
        () = gateway.listener.serve(socket, http, shutdown) => {}
        () = sweep_forever(&worker) => {}
    }
    worker.close_tunnels();
    if !background.is_empty() {
        gateway.has_background_tasks.store(false, Ordering::Relaxed);
    }
}

async fn sweep_forever<S: Store + 'static>(worker: &Worker<S>) {
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    // The age of a connection is counted in sweeps. Sweeps that a stalled thread missed do not count.
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        sweeps.tick().await;
        worker.sweep();
    }
}

/// Starts the background tasks, unless another worker runs them. They end when the set is dropped.
fn background_tasks<S: Store + 'static>(gateway: &Arc<GatewayState<S>>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if !gateway.has_background_tasks.swap(true, Ordering::Relaxed) {
        tasks.spawn(refresh_files_forever(Arc::clone(gateway)));
        tasks.spawn(check_upstreams(Arc::clone(gateway)));
        tasks.spawn(resolve_names(Arc::clone(gateway)));
    }
    tasks
}

/// Runs the health checks of all routes, and starts anew when routes change.
async fn check_upstreams<S: Store + 'static>(gateway: Arc<GatewayState<S>>) {
    let mut changes = gateway.route_changes.subscribe();
    loop {
        let (mut checks, table) = (JoinSet::new(), gateway.config().table);
        for route in table.routes() {
            let Some(check) = &route.settings.health else { continue };
            for endpoint in route.balancer.endpoints() {
                checks.spawn(check_forever(gateway.connector.clone(), Arc::clone(endpoint), check.clone()));
            }
        }
        drop(table);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps resolving the names of all upstreams, and starts anew when routes change.
async fn resolve_names<S: Store + 'static>(gateway: Arc<GatewayState<S>>) {
    let mut changes = gateway.route_changes.subscribe();
    loop {
        let _following = gateway.connector.resolver().follow(&gateway.config().table.names());
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn refresh_files_forever<S: Store + 'static>(gateway: Arc<GatewayState<S>>) {
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        ticks.tick().await;
        let gateway = Arc::clone(&gateway);
        // If reading fails, the files that were read last stay in use.
        let _done = tokio::task::spawn_blocking(move || gateway.refresh_files()).await;
    }
}
