//! Connections from clients: accepted up to a number, served, and drained when the gateway stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use spile_core::Store;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use crate::body::ClientBody;
use crate::bounds::Bounds;
use crate::client_stream::ClientStream;
use crate::farewell::{Farewell, Guest};
use crate::http2::{self, Received};
use crate::route::Served;
use crate::shared::Shared;
use crate::streams::Streams;
use crate::upstream::{Endpoint, HealthCheck, SWEEP_INTERVAL, check_forever};
use crate::worker::Worker;

/// How long to leave the socket alone after a failed accept, which mostly means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often files are looked at.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) secure: bool,
    /// Whether the request has two ends.
    pub(crate) ambiguous: bool,
}

/// Serves one listener until `shutdown` resolves.
pub(crate) async fn serve<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let chores = chores(&shared);
    let connections = Connections::new(Arc::clone(&shared));
    let mut shutdown = pin!(shutdown);
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    // Connections grow old by sweeps: those that a stalled thread missed do not count.
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            _ = sweeps.tick() => connections.worker.sweep(),
            accepted = connections.accept(&listener) => match accepted {
                Ok((stream, peer, permit)) => connections.open(stream, peer, permit),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    connections.drain().await;
    if !chores.is_empty() {
        shared.checking.store(false, Ordering::Relaxed);
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

struct Connections<S> {
    worker: Arc<Worker<S>>,
    tls: Option<TlsAcceptor>,
    bounds: Bounds,
    room: Arc<Semaphore>,
    farewell: Farewell,
}

impl<S: Store + 'static> Connections<S> {
    fn new(shared: Arc<Shared<S>>) -> Self {
        let bounds = shared.bounds.clone();
        Self {
            tls: shared.tls.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.config))),
            room: Arc::new(Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS))),
            worker: Arc::new(Worker::new(shared)),
            farewell: Farewell::new(),
            bounds,
        }
    }

    /// The next connection, once there is room for it.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = listener.accept().await?;
        // Answers leave as they arrive: waiting to fill a segment would only delay them.
        stream.set_nodelay(true)?;
        Ok((stream, peer, permit))
    }

    fn open(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        let (worker, mut guest) = (Arc::clone(&self.worker), self.farewell.guest());
        let bounds = self.bounds.clone();
        let origin = Origin { peer, secure: self.tls.is_some(), ambiguous: false };
        let Some(tls) = self.tls.clone() else {
            tokio::spawn(async move {
                talk(stream, permit, origin, worker, &bounds, guest).await;
            });
            return;
        };
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(bounds.handshake_timeout, tls.accept(stream));
            if let Some(Ok(Ok(stream))) = guest.unless_said(handshake).await {
                talk(stream, permit, origin, worker, &bounds, guest).await;
            }
        });
    }

    async fn drain(self) {
        let finished = async {
            self.farewell.say().await;
            self.worker.tunnels_closed().await;
        };
        // Whoever has not finished by then is cut off.
        let _in_time = tokio::time::timeout(self.bounds.drain, finished).await;
        self.worker.cut_tunnels();
    }
}

/// Serves one connection to its end.
async fn talk<S: Store + 'static>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    permit: OwnedSemaphorePermit,
    origin: Origin,
    worker: Arc<Worker<S>>,
    bounds: &Bounds,
    mut guest: Guest,
) {
    let streams = Streams::default();
    let mut stream = ClientStream::new(stream, bounds.header_timeout, bounds.write_timeout)
        .resting(bounds.header_timeout, streams.clone())
        .holding(permit);
    // A client that has said nothing yet has nothing to wait for.
    match guest.unless_said(stream.speaks_http2()).await {
        Some(Ok(false)) => talk_http1(stream, origin, worker, bounds, guest).await,
        // Boxed, so that connections of HTTP/1 need not carry it around.
        Some(Ok(true)) => {
            let answer = move |request: Request<Received>| {
                Arc::clone(&worker).answer_dated(origin, request.map(ClientBody::Http2))
            };
            Box::pin(http2::serve(stream, bounds, streams, guest, answer)).await;
        }
        Some(Err(_)) | None => {}
    }
}

async fn talk_http1<S: Store + 'static>(
    stream: ClientStream<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    origin: Origin,
    worker: Arc<Worker<S>>,
    bounds: &Bounds,
    guest: Guest,
) {
    let (ambiguity, asked) = (stream.ambiguity(), AtomicU64::new(0));
    let service = service_fn(move |request: Request<Incoming>| {
        let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
        let origin = Origin { ambiguous: ambiguity.reaches(number), ..origin };
        Arc::clone(&worker).answer(origin, request.map(ClientBody::Http1)).map(Ok::<_, Infallible>)
    });
    let connection = http1(bounds).serve_connection(TokioIo::new(stream), service).with_upgrades();
    // A connection that breaks is its client's affair: there is nobody left to tell.
    let _ended = guest.stay(connection, UpgradeableConnection::graceful_shutdown).await;
}

fn http1(bounds: &Bounds) -> Builder {
    let mut http = Builder::new();
    // Without a timer hyper's header timeout does nothing.
    http.timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(bounds.header_bytes)
        .max_headers(bounds.header_fields);
    http
}
