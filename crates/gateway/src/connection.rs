//! Connections from clients: accepted up to a number, served, and drained when the gateway stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use spile_core::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bounds::Bounds;
use crate::shared::Shared;
use crate::worker::Worker;

/// How long to leave the socket alone after a failed accept, which mostly means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often connections that have nothing to do are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) secure: bool,
}

/// Serves one listener until `shutdown` resolves.
pub(crate) async fn serve<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let connections = Connections::new(shared);
    let mut shutdown = pin!(shutdown);
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
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
}

struct Connections<S> {
    worker: Arc<Worker<S>>,
    http: Builder<TokioExecutor>,
    room: Arc<Semaphore>,
    graceful: GracefulShutdown,
    patience: Duration,
}

impl<S: Store + 'static> Connections<S> {
    fn new(shared: Arc<Shared<S>>) -> Self {
        let http = protocol(&shared.bounds);
        let room = Arc::new(Semaphore::new(shared.bounds.connections.min(Semaphore::MAX_PERMITS)));
        let patience = shared.bounds.drain;
        let worker = Arc::new(Worker::new(shared));
        Self { worker, http, room, graceful: GracefulShutdown::new(), patience }
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
        let worker = Arc::clone(&self.worker);
        let origin = Origin { peer, secure: false };
        let service = service_fn(move |request| {
            let worker = Arc::clone(&worker);
            async move { Ok::<_, Infallible>(worker.answer(origin, request).await) }
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks is its client's affair: there is nobody left to tell.
            let _ended = connection.await;
            drop(permit);
        });
    }

    async fn drain(self) {
        // Whoever has not finished by then is cut off.
        let _in_time = tokio::time::timeout(self.patience, self.graceful.shutdown()).await;
    }
}

fn protocol(bounds: &Bounds) -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
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
