//! Serves a listener: requests on the way in, and beside them what upstreams and files need.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response};
use spile_core::Store;
use spile_listener::{Answer, ClientBody, Http, Origin};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::worker::Worker;
use crate::forward::body::Reply;
use crate::gateway::Shared;
use crate::route::Served;
use crate::upstream::{Endpoint, HealthCheck, SWEEP_INTERVAL, check_forever};

/// How often files are looked at.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Serves one listener until `shutdown` resolves.
pub(crate) async fn serve<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    socket: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let chores = chores(&shared);
    let worker = Arc::new(Worker::new(Arc::clone(&shared)));
    let http = Http::new(Requests(Arc::clone(&worker)), shared.metrics.clone(), &shared.bounds);
    tokio::select! {
        () = shared.listener.serve(socket, http, shutdown) => {}
        () = sweep_forever(&worker) => {}
    }
    worker.cut_tunnels();
    if !chores.is_empty() {
        shared.checking.store(false, Ordering::Relaxed);
    }
}

async fn sweep_forever<S: Store + 'static>(worker: &Worker<S>) {
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    // Connections grow old by sweeps: those that a stalled thread missed do not count.
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        sweeps.tick().await;
        worker.sweep();
    }
}

/// What clients ask for over one listener.
struct Requests<S>(Arc<Worker<S>>);

impl<S> Clone for Requests<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store + 'static> Answer for Requests<S> {
    type Body = Reply;

    fn answer(
        self,
        origin: Origin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<Reply>> + Send + 'static {
        self.0.answer(origin, request)
    }

    async fn finished(&self) {
        self.0.tunnels_closed().await;
    }
}

/// What goes on beside serving, on the first worker only. Ends when dropped.
fn chores<S: Store + 'static>(shared: &Arc<Shared<S>>) -> JoinSet<()> {
    let mut chores = JoinSet::new();
    if !shared.checking.swap(true, Ordering::Relaxed) {
        chores.spawn(refresh_forever(Arc::clone(shared)));
        chores.spawn(check_upstreams(Arc::clone(shared)));
        chores.spawn(follow_names(Arc::clone(shared)));
    }
    chores
}

/// Asks upstreams whether they are well: those of the moment, whenever settings change.
async fn check_upstreams<S: Store + 'static>(shared: Arc<Shared<S>>) {
    let mut changes = shared.live.changes();
    loop {
        let mut checks = JoinSet::new();
        for served in shared.live.setup().table.routes() {
            for (endpoint, check) in checks_of(served) {
                checks.spawn(check_forever(shared.dialer.clone(), endpoint, check));
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Resolves the names of upstreams again and again: those of the moment, whenever settings change.
async fn follow_names<S: Store + 'static>(shared: Arc<Shared<S>>) {
    let mut changes = shared.live.changes();
    loop {
        let _following = shared.dialer.resolver().follow(&shared.live.setup().table.names());
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn checks_of(served: &Served) -> impl Iterator<Item = (Arc<Endpoint>, HealthCheck)> {
    let each = |check: &HealthCheck| {
        let check = check.clone();
        served.pool.endpoints().iter().map(move |endpoint| (Arc::clone(endpoint), check.clone()))
    };
    served.route.health.as_ref().map(each).into_iter().flatten()
}

async fn refresh_forever<S: Store + 'static>(shared: Arc<Shared<S>>) {
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        ticks.tick().await;
        let shared = Arc::clone(&shared);
        // A failure shows as what it is: the files in use stay the ones that were read last.
        let _done = tokio::task::spawn_blocking(move || shared.refresh_files()).await;
    }
}
