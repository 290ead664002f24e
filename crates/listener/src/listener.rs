//! Accepts connections up to a number, hands each to its protocol, and drains when told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::bounds::Bounds;
use crate::drain::{Drain, Watcher};
use crate::metrics::ConnectionMetrics;
use crate::tls::Tls;

/// How long to leave the socket alone after a failed accept, which mostly means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What bytes arrive over, plain or encrypted.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<I: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for I {}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether the request has two ends, or follows one whose end is not known. Always false for what is not HTTP/1.
    pub ambiguous: bool,
}

/// One client's connection, and its place among all of them.
pub struct Connection<I> {
    /// What it is read from and written to.
    pub stream: I,
    /// Where it comes from.
    pub origin: Origin,
    /// Says when to end.
    pub watcher: Watcher,
    /// Held until the connection is closed, whatever it has become by then.
    pub place: Place,
}

/// A connection's place.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
    metrics: ConnectionMetrics,
}

/// What is spoken on a listener.
pub trait Protocol: Clone + Send + 'static {
    /// Serves one connection to its end.
    fn serve<I: Transport>(self, connection: Connection<I>) -> impl Future<Output = ()> + Send;

    /// Resolves once what outlives its connection has ended too, such as tunnels.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// What accepts connections. Clones share their places, so that one listener can be served on several runtimes.
#[derive(Clone)]
pub struct Listener {
    bounds: Bounds,
    tls: Option<Tls>,
    room: Arc<Semaphore>,
    metrics: ConnectionMetrics,
}

impl Listener {
    /// A listener whose series have this name. They are taken under whichever recorder is in place.
    pub fn new(name: &'static str, bounds: &Bounds) -> Self {
        let room = Arc::new(Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS)));
        let metrics = ConnectionMetrics::new(name);
        Self { bounds: bounds.clone(), tls: None, room, metrics }
    }

    /// Speaks TLS and nothing else, if there is any.
    #[must_use]
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Whether it speaks TLS.
    pub const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads certificates again if their files have changed. Blocks while it reads.
    pub fn refresh_files(&self) {
        if let Some(tls) = &self.tls {
            tls.refresh();
        }
    }

    /// Accepts until `shutdown` resolves, then lets what is under way finish.
    pub async fn serve(
        &self,
        socket: TcpListener,
        protocol: impl Protocol,
        shutdown: impl Future<Output = ()>,
    ) {
        let (drain, mut shutdown) = (Drain::new(), std::pin::pin!(shutdown));
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = self.accept(&socket) => match accepted {
                    Ok((stream, peer, place)) => self.open(stream, peer, place, drain.watcher(), protocol.clone()),
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

    /// The next connection, once there is room for it.
    async fn accept(&self, socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr, Place)> {
        if self.room.available_permits() == 0 {
            self.metrics.full();
        }
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = socket.accept().await?;
        // Answers leave as they are written: waiting to fill a segment would only delay them.
        stream.set_nodelay(true)?;
        Ok((stream, peer, Place::new(permit, self.metrics.clone())))
    }

    fn open(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        place: Place,
        mut watcher: Watcher,
        protocol: impl Protocol,
    ) {
        let origin = Origin { peer, secure: self.tls.is_some(), ambiguous: false };
        let Some(tls) = &self.tls else {
            tokio::spawn(protocol.serve(Connection { stream, origin, watcher, place }));
            return;
        };
        let (acceptor, within) = (TlsAcceptor::from(tls.config()), self.bounds.handshake_timeout);
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(within, acceptor.accept(stream));
            match watcher.unless_draining(handshake).await {
                Some(Ok(Ok(stream))) => protocol.serve(Connection { stream, origin, watcher, place }).await,
                Some(Ok(Err(_)) | Err(_)) => place.metrics.handshake_failed(),
                None => {}
            }
        });
    }
}

impl Place {
    fn new(permit: OwnedSemaphorePermit, metrics: ConnectionMetrics) -> Self {
        metrics.opened();
        Self { _permit: permit, metrics }
    }

    /// The connection is ended because its client took too long.
    pub fn timed_out(&self) {
        self.metrics.timed_out();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.closed();
    }
}
