//! Accepts a bounded number of connections, passes each to its protocol, and drains when it is asked to stop.

mod bounds;
mod client_socket;
mod drain;
mod metrics;
mod place;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::bounds::Bounds;
use self::client_socket::ClientSocket;
pub use self::client_socket::HangUp;
pub(crate) use self::drain::Drain;
pub use self::drain::DrainWatcher;
use self::metrics::ConnectionMetrics;
pub use self::place::{ConnectionPlace, KeptPlace};
use crate::tls::Tls;

/// How long to wait after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A client's byte stream, with or without TLS.
pub trait ClientIo: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Whether closing the writing side sends nothing that the client has to read. A client that has read all replies and
    /// hangs up resets the connection if more arrives.
    const CLOSES_SILENTLY: bool;

    /// Tells when the client has hung up, even while bytes that it sent before lie unread.
    fn hang_up(&self) -> HangUp;
}

impl ClientIo for ClientSocket {
    const CLOSES_SILENTLY: bool = true;

    fn hang_up(&self) -> HangUp {
        self.hang_up()
    }
}

impl ClientIo for TlsStream<ClientSocket> {
    // TLS says that it is closing.
    const CLOSES_SILENTLY: bool = false;

    fn hang_up(&self) -> HangUp {
        self.get_ref().0.hang_up()
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct RequestOrigin {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether the length of the request is ambiguous, or the end of the request before it is not known. Always false
    /// if the protocol is not HTTP/1.
    pub ambiguous: bool,
}

/// A client's connection and its permit.
pub struct AcceptedConnection<I> {
    /// The byte stream.
    pub stream: I,
    /// Where it comes from.
    pub origin: RequestOrigin,
    /// Says when the listener drains.
    pub watcher: DrainWatcher,
    /// Held until the connection is closed, even if it becomes a tunnel.
    pub permit: ConnectionPermit,
}

/// Counts one connection against the bound of its listener for as long as it is held.
#[derive(Debug)]
pub struct ConnectionPermit {
    place: ConnectionPlace,
    metrics: ConnectionMetrics,
}

/// The protocol of a listener.
pub trait ListenerProtocol: Clone + Send + 'static {
    /// Serves one connection to its end.
    fn serve<I: ClientIo>(self, connection: AcceptedConnection<I>) -> impl Future<Output = ()> + Send;

    /// Resolves when everything that outlives its connection, such as a tunnel, has ended.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Accepts connections. Clones share one bound, so that a listener can be served on several runtimes.
#[derive(Clone)]
pub struct Listener {
    bounds: Bounds,
    tls: Option<Tls>,
    room: Arc<Semaphore>,
    metrics: ConnectionMetrics,
}

impl Listener {
    /// A listener whose metrics have this name. They are registered in the recorder that is installed now.
    pub fn new(name: &'static str, bounds: &Bounds) -> Self {
        let room = Arc::new(Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS)));
        let metrics = ConnectionMetrics::new(name);
        Self { bounds: bounds.clone(), tls: None, room, metrics }
    }

    /// Requires TLS. `None` means plain connections.
    #[must_use]
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// The number of connections that are open.
    pub fn connections(&self) -> usize {
        self.metrics.open()
    }

    /// Whether it requires TLS.
    pub const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads certificates again if their files have changed. Blocks while it reads.
    pub fn refresh_files(&self) {
        if let Some(tls) = &self.tls {
            tls.refresh();
        }
    }

    /// Accepts until `shutdown` resolves, then lets open requests finish.
    pub async fn serve(
        &self,
        socket: TcpListener,
        protocol: impl ListenerProtocol,
        shutdown: impl Future<Output = ()>,
    ) {
        let (drain, mut shutdown) = (Drain::new(), std::pin::pin!(shutdown));
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = self.accept(&socket) => match accepted {
                    Ok((stream, peer, permit)) => self.open(stream, peer, permit, drain.watcher(), protocol.clone()),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(socket);
        let finished = async {
            drain.drain().await;
            protocol.finished().await;
        };
        // A connection that has not ended by then is cut off.
        let _in_time = tokio::time::timeout(self.bounds.drain, finished).await;
    }

    /// The next connection, once there is a permit for it.
    async fn accept(&self, socket: &TcpListener) -> io::Result<(ClientSocket, SocketAddr, ConnectionPermit)> {
        if self.room.available_permits() == 0 {
            self.metrics.full();
        }
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = socket.accept().await?;
        // Without Nagle's algorithm: waiting to fill a segment would only delay responses.
        stream.set_nodelay(true)?;
        Ok((ClientSocket::new(stream), peer, ConnectionPermit::new(permit, self.metrics.clone())))
    }

    fn open(
        &self,
        stream: ClientSocket,
        peer: SocketAddr,
        permit: ConnectionPermit,
        mut watcher: DrainWatcher,
        protocol: impl ListenerProtocol,
    ) {
        let origin = RequestOrigin { peer, secure: self.tls.is_some(), ambiguous: false };
        let Some(tls) = &self.tls else {
            tokio::spawn(protocol.serve(AcceptedConnection { stream, origin, watcher, permit }));
            return;
        };
        let (acceptor, within) = (TlsAcceptor::from(tls.config()), self.bounds.handshake_timeout);
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(within, acceptor.accept(stream));
            match watcher.unless_draining(handshake).await {
                Some(Ok(Ok(stream))) => {
                    protocol.serve(AcceptedConnection { stream, origin, watcher, permit }).await;
                }
                Some(Ok(Err(_)) | Err(_)) => permit.metrics.handshake_failed(),
                None => {}
            }
        });
    }
}

impl ConnectionPermit {
    fn new(permit: OwnedSemaphorePermit, metrics: ConnectionMetrics) -> Self {
        metrics.opened();
        Self { place: ConnectionPlace::new(permit), metrics }
    }

    /// The place of the connection.
    pub const fn place(&self) -> &ConnectionPlace {
        &self.place
    }

    /// Counts that the connection was ended because its client took too long.
    pub fn timed_out(&self) {
        self.metrics.timed_out();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.metrics.closed();
    }
}
