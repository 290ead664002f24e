//! Connections from clients: accepted up to a number, served, and drained when the gateway stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{Builder, UpgradeableConnection};
use spile_core::Store;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use crate::bounds::Bounds;
use crate::client_stream::ClientStream;
use crate::farewell::{Farewell, Guest};
use crate::route::Served;
use crate::shared::Shared;
use crate::stream_patience::StreamExecutor;
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
        let (worker, guest, streams) = (Arc::clone(&self.worker), self.farewell.guest(), Streams::default());
        let http = protocol(&self.bounds, &streams);
        let origin = Origin { peer, secure: self.tls.is_some(), ambiguous: false };
        let (first_bytes, unread) = (self.bounds.header_timeout, self.bounds.write_timeout);
        let Some(tls) = self.tls.clone() else {
            tokio::spawn(async move {
                let stream = ClientStream::new(stream, first_bytes, unread).resting(first_bytes, streams);
                talk(stream, origin, worker, http, guest).await;
                drop(permit);
            });
            return;
        };
        let patience = self.bounds.handshake_timeout;
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = tokio::time::timeout(patience, tls.accept(stream)).await {
                let stream = ClientStream::new(stream, first_bytes, unread).resting(first_bytes, streams);
                talk(stream, origin, worker, http, guest).await;
            }
            drop(permit);
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
    stream: ClientStream<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    origin: Origin,
    worker: Arc<Worker<S>>,
    http: Builder<StreamExecutor>,
    guest: Guest,
) {
    let (ambiguity, asked) = (stream.ambiguity(), AtomicU64::new(0));
    let service = service_fn(move |request| {
        let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
        let origin = Origin { ambiguous: ambiguity.reaches(number), ..origin };
        Arc::clone(&worker).answer(origin, request).map(Ok::<_, Infallible>)
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    // A connection that breaks is its client's affair: there is nobody left to tell.
    let _ended = guest.stay(connection, UpgradeableConnection::graceful_shutdown).await;
}

fn protocol(bounds: &Bounds, streams: &Streams) -> Builder<StreamExecutor> {
    let (taken_within, streams) = (bounds.write_timeout, streams.clone());
    let mut http = Builder::new(StreamExecutor { taken_within, streams });
    // Without a timer hyper's header timeout does nothing.
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(bounds.header_bytes)
        .max_headers(bounds.header_fields);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams)
        .max_header_list_size(u32::try_from(bounds.header_bytes).unwrap_or(u32::MAX))
        .adaptive_window(true)
        .keep_alive_interval(bounds.header_timeout);
    http
}
