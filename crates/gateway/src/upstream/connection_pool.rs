//! The connections of one worker to one upstream.
//!
//! Workers do not share pools, so a connection never moves between threads and no lock is contended.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as ConnectLock, MutexGuard};

use super::address::Upstream;
use super::connector::{ConnectPurpose, Connector};
use super::http1::Http1Connection;
use super::http2::{Http2Connection, Http2Stream};
use super::resolver::ConnectedAddress;

/// The most idle HTTP/1.1 connections. More are closed when their request is done.
const MAX_IDLE: usize = 512;
/// How often idle connections are checked.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The number of sweeps that an idle connection survives. It is closed after 40 to 50 seconds. Common servers close
/// idle connections after a minute, so it is mostly this side that closes, and requests rarely meet a connection that
/// is just being closed.
const MAX_SWEEPS: u32 = 4;

/// How long to wait after connecting to another address of a name has failed, before the next try.
const ADD_ADDRESS_PAUSE: Duration = Duration::from_secs(5);

/// A connection that can take a request.
pub(crate) enum ReadyConnection {
    /// A connection that carries one request at a time.
    Http1(Box<Http1Connection>),
    /// A stream on a connection that carries many.
    Http2(Http2Stream),
}

/// A connection that was just opened.
pub(crate) enum NewConnection {
    Http1(Box<Http1Connection>),
    Http2(Http2Connection),
}

impl NewConnection {
    /// Sets the address of a name that the connection leads to.
    pub(crate) fn with_address(self, connected_to: ConnectedAddress) -> Self {
        match self {
            Self::Http1(connection) => Self::Http1(Box::new(connection.with_address(connected_to))),
            Self::Http2(connection) => Self::Http2(connection.with_address(connected_to)),
        }
    }
}

/// An idle connection and the sweeps it has survived, which cost less to count than reading the clock per request.
type IdleConnection = (Box<Http1Connection>, u32);

/// The connections of one worker to one upstream. Lives as long as the worker and a route to the upstream.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<Vec<IdleConnection>>,
    pub(super) http2: Mutex<Http2Connections>,
    /// Held while the first HTTP/2 connection is opened, so that all requests that wait share it.
    connect_lock: ConnectLock<()>,
    /// Whether the last connection that was opened speaks HTTP/1.1.
    http1_only: AtomicBool,
    /// Whether the upstream's name may have an address to which no HTTP/2 connection leads.
    may_miss_address: AtomicBool,
    /// Whether a connection to such an address is being opened.
    adding_address: AtomicBool,
}

/// HTTP/2 connections, which carry many requests at once.
#[derive(Default)]
pub(super) struct Http2Connections {
    pub(super) connections: Vec<Http2Connection>,
    /// Counts requests if there are several addresses, so that connections take turns.
    turn: usize,
}

impl ConnectionPool {
    /// An open connection that can take a request, if there is one.
    pub(crate) fn checkout(&self) -> Option<ReadyConnection> {
        if let Some(stream) = self.checkout_stream() {
            return Some(ReadyConnection::Http2(stream));
        }
        while let Some(mut connection) = self.take_idle() {
            if connection.is_open() {
                return Some(ReadyConnection::Http1(connection));
            }
        }
        None
    }

    /// A stream on an HTTP/2 connection, if one has room.
    pub(crate) fn checkout_stream(&self) -> Option<Http2Stream> {
        let mut http2 = self.http2.lock();
        let (stream, closed) = http2.checkout_stream();
        if closed {
            self.may_miss_address.store(true, Ordering::Relaxed);
        }
        stream
    }

    /// Waits until no other request is opening an HTTP/2 connection.
    pub(crate) async fn lock_connect(&self) -> MutexGuard<'_, ()> {
        self.connect_lock.lock().await
    }

    /// Keeps a connection for the next request, unless the pool is full.
    pub(crate) fn put_idle(&self, connection: Box<Http1Connection>) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push((connection, 0));
        }
    }

    /// Adds an HTTP/2 connection to the pool, and takes the first stream on it. `None` if the upstream allows no
    /// streams: the connection is dropped then.
    pub(crate) fn add_http2(&self, connection: Http2Connection) -> Option<Http2Stream> {
        self.http1_only.store(false, Ordering::Relaxed);
        let first = connection.open_stream()?;
        self.http2.lock().connections.push(connection);
        self.may_miss_address.store(true, Ordering::Relaxed);
        Some(first)
    }

    /// Whether the next connection is expected to speak HTTP/2, as the last one did.
    pub(crate) fn expects_http2(&self) -> bool {
        !self.http1_only.load(Ordering::Relaxed)
    }

    /// Records that a new connection speaks HTTP/1.1.
    pub(crate) fn expect_http1(&self) {
        self.http1_only.store(true, Ordering::Relaxed);
    }

    /// Opens an HTTP/2 connection to an address of the upstream's name that has none yet, in the background. Requests
    /// use the existing connections meanwhile: an address that accepts connections and then hangs must not delay them.
    pub(crate) fn add_missing_address(
        self: &Arc<Self>,
        connector: &Connector,
        upstream: &Upstream,
        within: Duration,
    ) {
        if !self.may_miss_address.load(Ordering::Relaxed) || self.adding_address.swap(true, Ordering::Relaxed)
        {
            return;
        }
        self.may_miss_address.store(false, Ordering::Relaxed);
        let Some(connected) = self.http2.lock().connected_if_incomplete() else {
            self.adding_address.store(false, Ordering::Relaxed);
            return;
        };
        let (pool, connector, upstream) = (Arc::clone(self), connector.clone(), upstream.clone());
        tokio::spawn(async move {
            let connected =
                connector.connect(&upstream, ConnectPurpose::OtherAddress(&connected), within).await;
            let added = match connected {
                Ok(NewConnection::Http2(connection)) => pool.add_http2(connection).is_some(),
                Ok(NewConnection::Http1(_)) | Err(_) => false,
            };
            if !added {
                tokio::time::sleep(ADD_ADDRESS_PAUSE).await;
                pool.may_miss_address.store(true, Ordering::Relaxed);
            }
            pool.adding_address.store(false, Ordering::Relaxed);
        });
    }

    /// Closes connections that have been idle for too long or were closed by the upstream.
    pub(crate) fn sweep(&self) {
        self.idle.lock().retain_mut(|(connection, sweeps)| {
            *sweeps += 1;
            *sweeps <= MAX_SWEEPS && connection.is_open()
        });
        self.http2.lock().connections.retain(|http2| http2.is_open() && http2.sweep() <= MAX_SWEEPS);
        // The name may have other addresses by now.
        self.may_miss_address.store(true, Ordering::Relaxed);
    }

    /// The connection that became idle last, which is the least likely to have been closed.
    fn take_idle(&self) -> Option<Box<Http1Connection>> {
        self.idle.lock().pop().map(|(connection, _)| connection)
    }
}

impl Http2Connections {
    /// A stream on the first connection that has room, so that the others can become idle and close. If the upstream has several
    /// addresses, the connections take turns. Also returns whether a closed connection was found and removed.
    fn checkout_stream(&mut self) -> (Option<Http2Stream>, bool) {
        let mut closed = false;
        while let Some(first) = self.connections.first() {
            let count = self.connections.len();
            self.turn = if first.addresses() > 1 { self.turn.wrapping_add(1) } else { 0 };
            let mut in_turn = (0..count).map(|step| (self.turn % count + step) % count);
            let open = in_turn.find_map(|index| {
                let connection = &self.connections[index];
                if connection.is_open() { connection.open_stream().map(Ok) } else { Some(Err(index)) }
            });
            match open {
                Some(Err(index)) => drop(self.connections.swap_remove(index)),
                Some(Ok(stream)) => return (Some(stream), closed),
                None => return (None, closed),
            }
            closed = true;
        }
        (None, closed)
    }

    /// The addresses that connections lead to. `None` if the upstream's name has no others.
    pub(super) fn connected_if_incomplete(&self) -> Option<Vec<IpAddr>> {
        let first = self.connections.first()?.connected_to()?;
        let addresses = self.connections.iter().filter_map(Http2Connection::connected_to);
        let connected: Vec<IpAddr> = addresses.map(ConnectedAddress::address).collect();
        first.has_address_outside(&connected).then_some(connected)
    }
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionPool").field("idle", &self.idle.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::upstream::http1::UpstreamIo;

    #[tokio::test]
    async fn a_connection_that_is_not_used_ends_within_fifty_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_upstream, _) = listener.accept().await.unwrap();
        let pool = ConnectionPool::default();
        pool.put_idle(Box::new(Http1Connection::new(UpstreamIo::Plain(stream))));
        for _ in 0..4 {
            pool.sweep();
        }
        let Some(ReadyConnection::Http1(used)) = pool.checkout() else {
            panic!("forty seconds are not too long")
        };
        pool.put_idle(used);
        for _ in 0..4 {
            pool.sweep();
        }
        assert_eq!(pool.idle.lock().len(), 1, "use makes it young again");
        pool.sweep();
        assert!(pool.checkout().is_none());
        assert!(SWEEP_INTERVAL * (MAX_SWEEPS + 1) <= Duration::from_secs(50));
    }
}
