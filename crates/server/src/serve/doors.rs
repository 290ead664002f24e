//! The server's listeners: what each is for, all of them open, and the order in which they close.

use std::sync::Arc;
use std::time::Duration;

use spile_listener::{Bounds, Http, Listener};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::Admin;
use crate::config::{Config, TlsConfig};
use crate::gateway::Front;
use crate::grpc::{Grpc, Health};
use crate::http::Api;
use crate::observe::metrics::Telemetry;
use crate::observe::traced::Traced;
use crate::resp::Resp;
use crate::serve::Listeners;

/// How long those who watch a server that stops may take to see its end.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// How often certificates are looked at.
const REFRESH: Duration = Duration::from_secs(1);

/// How connections come in, at all listeners but the gateway, which has its own.
pub(crate) struct Doors {
    http: Listener,
    admin: Listener,
    grpc: Listener,
    resp: Listener,
}

/// What answers behind each.
pub(crate) struct Answers {
    pub(crate) http: Http<Traced<Api>>,
    pub(crate) admin: Http<Admin>,
    pub(crate) grpc: Option<(Http<Traced<Grpc>>, Health)>,
    pub(crate) resp: Option<Resp>,
    pub(crate) gateway: Option<Arc<Front>>,
}

/// Listeners that are being served.
pub(crate) struct OpenDoors {
    stop: watch::Sender<bool>,
    callers: JoinSet<()>,
    stop_admin: watch::Sender<bool>,
    admin: JoinHandle<()>,
    refreshes: JoinHandle<()>,
}

impl Doors {
    pub(crate) fn new(config: &Config, telemetry: &Telemetry) -> Self {
        let bounds = &config.listen.bounds;
        let door = |name, bounds: &Bounds, tls: &Option<TlsConfig>| {
            telemetry.register(|| Listener::new(name, bounds)).tls(tls.as_ref().map(|tls| tls.tls.clone()))
        };
        let mut last = bounds.clone();
        last.drain = last.drain.min(LAST_LOOK);
        Self {
            http: door("http", bounds, &config.http_tls),
            admin: door("admin", &last, &config.admin.tls),
            grpc: door("grpc", bounds, &config.grpc.tls),
            resp: door("resp", bounds, &config.resp.tls),
        }
    }

    /// Serves all of them, each as far as it has a socket.
    pub(crate) fn open(self, sockets: Listeners, answers: Answers) -> OpenDoors {
        let Self { http, admin, grpc, resp } = self;
        let all = [&http, &admin, &grpc, &resp];
        let refreshes = tokio::spawn(refresh_forever(all.into_iter().cloned().collect()));
        let ((stop, stopped), (stop_admin, admin_stopped)) = (watch::channel(false), watch::channel(false));
        let mut callers = JoinSet::new();
        let stopped = move || until(stopped.clone());
        let until_stopped = stopped();
        callers.spawn(async move { http.serve(sockets.http, answers.http, until_stopped).await });
        if let (Some(socket), Some((answer, health))) = (sockets.grpc, answers.grpc) {
            callers.spawn(limit_for_envoy(grpc, socket, answer, health, stop.subscribe()));
        }
        if let (Some(socket), Some(answer)) = (sockets.resp, answers.resp) {
            let until_stopped = stopped();
            callers.spawn(async move { resp.serve(socket, answer, until_stopped).await });
        }
        if let (Some(socket), Some(front)) = (sockets.gateway, answers.gateway) {
            let until_stopped = stopped();
            callers.spawn(async move { front.gateway.serve(socket, until_stopped).await });
        }
        let admin = tokio::spawn(async move {
            admin.serve(sockets.admin, answers.admin, until(admin_stopped)).await;
        });
        OpenDoors { stop, callers, stop_admin, admin, refreshes }
    }
}

impl OpenDoors {
    /// Lets requests under way finish, everywhere but at the admin listener.
    pub(crate) async fn drain(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.callers.join_next().await {
            unless_panicked(ended);
        }
    }

    /// Closes the admin listener too.
    pub(crate) async fn close(self) {
        self.stop_admin.send_replace(true);
        unless_panicked(self.admin.await);
        self.refreshes.abort();
    }
}

/// A listener's task never fails unless the program is wrong, and then it should say so.
fn unless_panicked(ended: Result<(), tokio::task::JoinError>) {
    if let Err(why) = ended
        && why.is_panic()
    {
        std::panic::resume_unwind(why.into_panic());
    }
}

/// Resolves once the other end says stop, or is gone.
pub(crate) async fn told_to(stop: &mut watch::Receiver<bool>) {
    let _told_or_gone = stop.wait_for(|stop| *stop).await;
}

/// Resolves once `stop` says so.
async fn until(mut stop: watch::Receiver<bool>) {
    told_to(&mut stop).await;
}

async fn limit_for_envoy(
    door: Listener,
    socket: TcpListener,
    grpc: Http<Traced<Grpc>>,
    health: Health,
    stop: watch::Receiver<bool>,
) {
    health.tell_now().await;
    tokio::join!(health.follow(stop.clone()), door.serve(socket, grpc, until(stop)));
}

/// Reads certificates again whenever their files change.
async fn refresh_forever(doors: Vec<Listener>) {
    let secure: Vec<Listener> = doors.into_iter().filter(Listener::is_secure).collect();
    let mut ticks = tokio::time::interval(REFRESH);
    while !secure.is_empty() {
        ticks.tick().await;
        let secure = secure.clone();
        let refresh = move || secure.iter().for_each(Listener::refresh_files);
        // A failure shows as what it is: the files in use stay the ones that were read last.
        let _done = tokio::task::spawn_blocking(refresh).await;
    }
}
