//! The server's listeners: how each is set up, the tasks that serve them, and the order in which they close.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spile_listener::{Bounds, Http, Listener};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::admin::Admin;
use crate::config::{Config, TlsConfig};
use crate::gateway::GatewayHandle;
use crate::grpc::{Grpc, GrpcHealth};
use crate::http::Api;
use crate::observe::metrics::Telemetry;
use crate::observe::traced::Traced;
use crate::resp::Resp;
use crate::serve::{ConnectionShares, Listeners};

/// How long the admin listener drains: probes and scrapers may see the end of the server.
const ADMIN_DRAIN: Duration = Duration::from_secs(2);

/// How often the progress of a drain is logged.
const PROGRESS: Duration = Duration::from_secs(1);

/// How often the files of certificates are checked for changes.
const REFRESH: Duration = Duration::from_secs(1);

/// Every listener but the gateway's, which the gateway makes itself.
pub(crate) struct ListenerSet {
    http: Listener,
    admin: Listener,
    grpc: Listener,
    resp: Listener,
}

/// The handlers of each listener's requests.
pub(crate) struct Handlers {
    pub(crate) http: Http<Traced<Api>>,
    pub(crate) admin: Http<Admin>,
    pub(crate) grpc: Option<(Http<Traced<Grpc>>, GrpcHealth)>,
    pub(crate) resp: Option<Resp>,
    pub(crate) gateway: Option<Arc<GatewayHandle>>,
}

/// Listeners that are being served.
pub(crate) struct RunningListeners {
    stop: watch::Sender<bool>,
    callers: JoinSet<()>,
    stop_admin: watch::Sender<bool>,
    admin: JoinHandle<()>,
    refreshes: JoinHandle<()>,
    open: OpenConnections,
}

/// Counts the connections of callers, listener by listener.
struct OpenConnections {
    listeners: Vec<(&'static str, Listener)>,
    gateway: Option<Arc<GatewayHandle>>,
}

impl ListenerSet {
    pub(crate) fn new(config: &Config, shares: &ConnectionShares, telemetry: &Telemetry) -> Self {
        let bounds = &config.listen.bounds;
        let listener = |name, bounds: &Bounds, connections, tls: &Option<TlsConfig>| {
            let mut bounds = bounds.clone();
            bounds.connections = connections;
            telemetry.register(|| Listener::new(name, &bounds)).tls(tls.as_ref().map(|tls| tls.tls.clone()))
        };
        let mut last = bounds.clone();
        last.drain = last.drain.min(ADMIN_DRAIN);
        Self {
            http: listener("http", bounds, shares.http, &config.http_tls),
            admin: listener("admin", &last, shares.admin, &config.admin.tls),
            grpc: listener("grpc", bounds, shares.grpc, &config.grpc.tls),
            resp: listener("resp", bounds, shares.resp, &config.resp.tls),
        }
    }

    /// Serves every listener that has a socket.
    pub(crate) fn open(self, sockets: Listeners, handlers: Handlers) -> RunningListeners {
        let Self { http, admin, grpc, resp } = self;
        let all = [&http, &admin, &grpc, &resp];
        let refreshes = tokio::spawn(refresh_forever(all.into_iter().cloned().collect()));
        let ((stop, stopped), (stop_admin, admin_stopped)) = (watch::channel(false), watch::channel(false));
        let counted = vec![("http", http.clone()), ("grpc", grpc.clone()), ("resp", resp.clone())];
        let open = OpenConnections { listeners: counted, gateway: handlers.gateway.clone() };
        let mut callers = JoinSet::new();
        let stopped = move || until(stopped.clone());
        let until_stopped = stopped();
        callers.spawn(async move { http.serve(sockets.http, handlers.http, until_stopped).await });
        if let (Some(socket), Some((answer, health))) = (sockets.grpc, handlers.grpc) {
            callers.spawn(limit_for_envoy(grpc, socket, answer, health, stop.subscribe()));
        }
        if let (Some(socket), Some(answer)) = (sockets.resp, handlers.resp) {
            let until_stopped = stopped();
            callers.spawn(async move { resp.serve(socket, answer, until_stopped).await });
        }
        if let (Some(socket), Some(front)) = (sockets.gateway, handlers.gateway) {
            let until_stopped = stopped();
            callers.spawn(async move { front.gateway.serve(socket, until_stopped).await });
        }
        let admin = tokio::spawn(async move {
            admin.serve(sockets.admin, handlers.admin, until(admin_stopped)).await;
        });
        RunningListeners { stop, callers, stop_admin, admin, refreshes, open }
    }
}

impl RunningListeners {
    /// Lets requests in flight finish on every listener but `admin`. Logs every second what it waits for.
    pub(crate) async fn drain(&mut self) {
        let open = self.open.count();
        tracing::info!(
            target: "spile::serve", connections = open,
            "draining: no new connections are accepted, and requests under way are finished"
        );
        self.stop.send_replace(true);
        let mut ticks = tokio::time::interval_at(Instant::now() + PROGRESS, PROGRESS);
        loop {
            tokio::select! {
                ended = self.callers.join_next() => match ended {
                    Some(ended) => resume_panic(ended),
                    None => break,
                },
                _ = ticks.tick() => {
                    let connections = self.open.count();
                    tracing::info!(target: "spile::serve", connections, "still draining: {}", self.open);
                }
            }
        }
        match self.open.count() {
            0 => tracing::info!(target: "spile::serve", "drained"),
            connections => tracing::warn!(
                target: "spile::serve", connections,
                "the time to drain is over, and connections are cut off: {}", self.open
            ),
        }
    }

    /// Closes the admin listener too.
    pub(crate) async fn close(self) {
        self.stop_admin.send_replace(true);
        resume_panic(self.admin.await);
        self.refreshes.abort();
    }
}

impl OpenConnections {
    fn by_listener(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let gateway = self.gateway.iter().map(|front| ("gateway", front.gateway.connections()));
        self.listeners.iter().map(|(name, listener)| (*name, listener.connections())).chain(gateway)
    }

    fn count(&self) -> usize {
        self.by_listener().map(|(_, open)| open).sum()
    }
}

impl fmt::Display for OpenConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open: Vec<String> = self
            .by_listener()
            .filter(|(_, open)| *open > 0)
            .map(|(name, open)| format!("{open} connections of {name}"))
            .collect();
        f.write_str(if open.is_empty() { "no connections" } else { "" })?;
        f.write_str(&open.join(", "))
    }
}

/// Passes on a panic of a listener's task. It cannot fail otherwise.
fn resume_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(why) = ended
        && why.is_panic()
    {
        std::panic::resume_unwind(why.into_panic());
    }
}

/// Resolves once `stop` is set or its sender is gone.
pub(crate) async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    let _set_or_gone = stop.wait_for(|stop| *stop).await;
}

/// Waits on a separate receiver.
async fn until(mut stop: watch::Receiver<bool>) {
    stop_requested(&mut stop).await;
}

async fn limit_for_envoy(
    listener: Listener,
    socket: TcpListener,
    grpc: Http<Traced<Grpc>>,
    health: GrpcHealth,
    stop: watch::Receiver<bool>,
) {
    health.tell_now().await;
    tokio::join!(health.follow(stop.clone()), listener.serve(socket, grpc, until(stop)));
}

/// Reads certificates again whenever their files change.
async fn refresh_forever(listeners: Vec<Listener>) {
    let secure: Vec<Listener> = listeners.into_iter().filter(Listener::is_secure).collect();
    let mut ticks = tokio::time::interval(REFRESH);
    while !secure.is_empty() {
        ticks.tick().await;
        let secure = secure.clone();
        let refresh = move || secure.iter().for_each(Listener::refresh_files);
        // If it fails, the certificates that were read last stay in use.
        let _done = tokio::task::spawn_blocking(refresh).await;
    }
}
