//! Opens connections to upstreams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::address::{Upstream, UpstreamProtocol};
use super::attempt_error::AttemptError;
use super::connection_pool::NewConnection;
use super::http1::{Http1Connection, UpstreamIo};
use super::http2::Http2Connection;
use super::resolver::{ConnectedAddress, HostAddresses, ResolvedHost, Resolver};
use super::tls::UpstreamTls;

/// How long an attempt to connect has to itself before the next address is tried in parallel (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// How long a connection is silent before the kernel probes whether the other machine is alive, and how often it probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long bytes may stay unacknowledged, or unread by an upstream whose buffers are full, before the kernel ends a connection. As
/// long as the usual idle timeout: an upstream that reads slowly must not lose its connection earlier.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_FOR: Duration = Duration::from_secs(60);
/// The warning that this machine cannot open connections is logged at most this often.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Opens connections to upstreams.
#[derive(Clone)]
pub(crate) struct Connector {
    /// For upstreams without TLS settings.
    tls: UpstreamTls,
    resolver: Arc<Resolver>,
    /// The HTTP/2 flow-control window of each stream, in bytes.
    stream_window: u32,
    /// When the warning was last logged.
    last_warned: Arc<Mutex<Option<Instant>>>,
}

/// The purpose of a new connection.
#[derive(Clone, Copy)]
pub(crate) enum ConnectPurpose<'a> {
    Request,
    /// An upgrade to another protocol, which is not possible over HTTP/2.
    Upgrade,
    /// Requests, to an address other than these.
    OtherAddress(&'a [IpAddr]),
}

impl<'a> ConnectPurpose<'a> {
    /// Addresses not to connect to.
    const fn excluded(self) -> &'a [IpAddr] {
        match self {
            Self::Request | Self::Upgrade => &[],
            Self::OtherAddress(others) => others,
        }
    }
}

/// Why no connection could be opened. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// This machine has run out of descriptors, ports or memory, or forbids the connection.
    #[error("this machine cannot open another connection: {0}")]
    NoLocalResources(io::Error),
    #[error(transparent)]
    Io(io::Error),
    #[error(transparent)]
    Http(#[from] h2::Error),
}

impl ConnectError {
    /// Whether the cause is this machine and not the upstream.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::NoLocalResources(_))
    }

    /// The error of the attempt that needed the connection.
    pub(crate) const fn outcome(&self) -> AttemptError {
        if self.is_local() { AttemptError::NoLocalResources } else { AttemptError::Unreachable }
    }
}

impl From<io::Error> for ConnectError {
    fn from(why: io::Error) -> Self {
        if is_local(&why) { Self::NoLocalResources(why) } else { Self::Io(why) }
    }
}

impl Connector {
    pub(crate) fn new(tls: UpstreamTls, resolver: Resolver, stream_window: u32) -> Self {
        Self { tls, resolver: Arc::new(resolver), stream_window, last_warned: Arc::default() }
    }

    pub(crate) const fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }

    /// Opens a connection to the upstream.
    pub(crate) async fn connect(
        &self,
        upstream: &Upstream,
        purpose: ConnectPurpose<'_>,
        within: Duration,
    ) -> Result<NewConnection, ConnectError> {
        let connecting = tokio::time::timeout(within, self.open(upstream, purpose));
        let connected = connecting.await.unwrap_or(Err(ConnectError::TimedOut(within)));
        if let Err(why @ ConnectError::NoLocalResources(_)) = &connected {
            self.warn(why);
        }
        connected
    }

    async fn open(
        &self,
        upstream: &Upstream,
        purpose: ConnectPurpose<'_>,
    ) -> Result<NewConnection, ConnectError> {
        if let Some(path) = &upstream.socket {
            return self.connect_unix(upstream, path).await;
        }
        if let Ok(address) = upstream.host().parse::<IpAddr>() {
            return self.connect_to(upstream, SocketAddr::new(address, upstream.port()), purpose).await;
        }
        let (host, addresses) = self.resolver.resolve(upstream.host()).await?;
        let mut lookup = LookupOnDrop(Some(&host));
        let (connection, address) = self.race_addresses(upstream, &addresses, purpose).await?;
        lookup.0 = None;
        Ok(connection.with_address(ConnectedAddress::new(Arc::clone(&host), address)))
    }

    async fn connect_unix(&self, upstream: &Upstream, path: &Path) -> Result<NewConnection, ConnectError> {
        // A missing permission for the socket file is a problem of this upstream, not of the machine.
        let stream = UnixStream::connect(path).await.map_err(|why| match why.kind() {
            io::ErrorKind::PermissionDenied => ConnectError::Io(why),
            _ => why.into(),
        })?;
        match upstream.protocol {
            UpstreamProtocol::Http2 => self.http2_connection(stream).await,
            UpstreamProtocol::Http1 | UpstreamProtocol::Tls => Ok(http1_connection(UpstreamIo::Unix(stream))),
        }
    }

    /// Connects to the first address that works (Happy Eyeballs). The next is tried when one fails or is slow.
    async fn race_addresses(
        &self,
        upstream: &Upstream,
        addresses: &HostAddresses,
        purpose: ConnectPurpose<'_>,
    ) -> Result<(NewConnection, IpAddr), ConnectError> {
        let port = upstream.port();
        let (mut waiting, mut under_way) =
            (addresses.rotated(purpose.excluded()).into_iter(), FuturesUnordered::new());
        let (mut latest, mut failure) = (None, None);
        loop {
            if let Some(address) = waiting.next() {
                latest = Some(address);
                under_way.push(async move {
                    (address, self.connect_to(upstream, address.at(port), purpose).await)
                });
            }
            let head_start = if waiting.len() == 0 { Duration::MAX } else { HEAD_START };
            match tokio::time::timeout(head_start, under_way.next()).await {
                Ok(Some((address, Ok(connection)))) => {
                    address.record_connect(true);
                    return Ok((connection, address.at(port).ip()));
                }
                Ok(Some((address, Err(why)))) => {
                    address.record_connect(false);
                    // This machine may not support the family of one address. That says nothing about the others.
                    if failure.is_none() || !why.is_local() {
                        failure = Some(why);
                    }
                }
                Ok(None) => {
                    return Err(failure.unwrap_or_else(|| ConnectError::Io(io::ErrorKind::NotFound.into())));
                }
                Err(_) => latest.iter().for_each(|address| address.record_connect(false)),
            }
        }
    }

    /// Opens a connection to this address.
    async fn connect_to(
        &self,
        upstream: &Upstream,
        address: SocketAddr,
        purpose: ConnectPurpose<'_>,
    ) -> Result<NewConnection, ConnectError> {
        let stream = TcpStream::connect(address).await?;
        set_socket_options(&stream)?;
        match upstream.protocol {
            UpstreamProtocol::Http1 => Ok(http1_connection(UpstreamIo::Plain(stream))),
            UpstreamProtocol::Http2 => self.http2_connection(stream).await,
            UpstreamProtocol::Tls => self.connect_tls(upstream, stream, purpose).await,
        }
    }

    async fn connect_tls(
        &self,
        upstream: &Upstream,
        stream: TcpStream,
        purpose: ConnectPurpose<'_>,
    ) -> Result<NewConnection, ConnectError> {
        let tls = upstream.tls.as_ref().unwrap_or(&self.tls);
        let name = match tls.server_name() {
            Some(name) => name.clone(),
            None => ServerName::try_from(upstream.host().to_owned()).map_err(io::Error::other)?,
        };
        let clients = tls.client_configs();
        let client = match purpose {
            ConnectPurpose::Upgrade => &clients.only_http1,
            ConnectPurpose::Request | ConnectPurpose::OtherAddress(_) => &clients.either_version,
        };
        let stream = TlsConnector::from(Arc::clone(client)).connect(name, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.http2_connection(stream).await
        } else {
            Ok(http1_connection(UpstreamIo::Tls(Box::new(stream))))
        }
    }

    async fn http2_connection(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<NewConnection, ConnectError> {
        Ok(NewConnection::Http2(Http2Connection::open(stream, self.stream_window).await?))
    }

    fn warn(&self, why: &ConnectError) {
        let mut last_warned = self.last_warned.lock();
        if last_warned.is_none_or(|last_warned| last_warned.elapsed() >= WARN_INTERVAL) {
            *last_warned = Some(Instant::now());
            tracing::warn!(target: "spile::upstreams", "{why}; requests are answered with 503");
        }
    }
}

/// Sends small writes at once, and lets the kernel detect that the other machine has vanished.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    // Requests are written in one piece, so waiting for a full segment would only delay them.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_FOR))?;
    Ok(())
}

/// Whether connecting failed because this machine lacks a resource.
fn is_local(why: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, OutOfMemory, PermissionDenied};
    // These errors have no `ErrorKind`: no descriptors left in the system or the process, and no buffers.
    const NFILE: i32 = 23;
    const MFILE: i32 = 24;
    const NOBUFS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };
    matches!(why.kind(), AddrInUse | AddrNotAvailable | OutOfMemory | PermissionDenied)
        || matches!(why.raw_os_error(), Some(NFILE | MFILE | NOBUFS))
}

fn http1_connection(transport: UpstreamIo) -> NewConnection {
    NewConnection::Http1(Box::new(Http1Connection::new(transport)))
}

/// Requests a new lookup of the name when dropped, unless one of its addresses accepted a connection.
struct LookupOnDrop<'n>(Option<&'n ResolvedHost>);

impl Drop for LookupOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.0 {
            host.request_lookup();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::upstream::{ConnectionPool, ReadyConnection, Roots};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A connector that resolves every name to these addresses.
    fn connector(addresses: &Arc<Mutex<Vec<SocketAddr>>>) -> Connector {
        let addresses = Arc::clone(addresses);
        let resolver = Resolver::new(Box::new(move |_| {
            let now = addresses.lock().clone();
            Box::pin(async move { Ok(now) })
        }));
        Connector::new(UpstreamTls::trusting(&Roots::Only(Vec::new())).unwrap(), resolver, 65_535)
    }

    /// Listeners on the same port of several addresses of this machine, and an upstream whose name resolves to them.
    async fn listeners(hosts: &[&str]) -> (Vec<TcpListener>, Arc<Mutex<Vec<SocketAddr>>>, Upstream) {
        let (all, port) = loop {
            let first = TcpListener::bind((hosts[0], 0)).await.unwrap();
            let port = first.local_addr().unwrap().port();
            let others = hosts[1..].iter().map(|host| TcpListener::bind((*host, port)));
            // Another program may use the port on one of the addresses.
            if let Ok(others) = futures_util::future::try_join_all(others).await {
                break (std::iter::once(first).chain(others).collect::<Vec<_>>(), port);
            }
        };
        let addresses = all.iter().map(|listener| listener.local_addr().unwrap()).collect();
        (all, Arc::new(Mutex::new(addresses)), format!("http://app.test:{port}").parse().unwrap())
    }

    #[tokio::test]
    async fn connections_go_to_all_addresses_of_a_name_in_turn() {
        let (listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2"]).await;
        let connector = connector(&addresses);
        let mut connections = Vec::new();
        for _ in 0..20 {
            connections.push(connector.connect(&upstream, ConnectPurpose::Request, PATIENCE).await.unwrap());
        }
        // All connections are in the accept queues by now. An address that was slow to connect loses its turn.
        let waiting = |listener: TcpListener| {
            let listener = listener.into_std().unwrap();
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        let counts: Vec<usize> = listeners.into_iter().map(waiting).collect();
        assert!(counts.iter().sum::<usize>() >= 20 && counts.iter().all(|&count| count > 0), "{counts:?}");
    }

    #[tokio::test]
    async fn an_address_that_refuses_or_says_nothing_costs_no_connection() {
        let (listeners, addresses, upstream) = listeners(&["127.0.0.1"]).await;
        let refuses = SocketAddr::from(([127, 0, 0, 2], 0));
        // If the accept queue is full, the kernel ignores new connections.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind(SocketAddr::from(([127, 0, 0, 3], upstream.port()))).unwrap();
        let silent = silent.listen(1).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(HEAD_START * 4, TcpStream::connect(silent.local_addr().unwrap())).await
        {
            queued.push(stream.unwrap());
            assert!(queued.len() < 64, "the queue has no end");
        }
        *addresses.lock() = vec![silent.local_addr().unwrap(), refuses, listeners[0].local_addr().unwrap()];
        let connector = connector(&addresses);
        for _ in 0..6 {
            let NewConnection::Http1(_) =
                connector.connect(&upstream, ConnectPurpose::Request, PATIENCE).await.unwrap()
            else {
                unreachable!()
            };
            tokio::time::timeout(PATIENCE, listeners[0].accept()).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_the_name_no_longer_has_is_not_used_again() {
        let (listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2"]).await;
        let connector = connector(&addresses);
        let pool = ConnectionPool::default();
        let mut accepted = Vec::new();
        for _ in 0..2 {
            let NewConnection::Http1(connection) =
                connector.connect(&upstream, ConnectPurpose::Request, PATIENCE).await.unwrap()
            else {
                unreachable!()
            };
            pool.put_idle(connection);
        }
        for listener in &listeners {
            accepted.push(listener.accept().await.unwrap());
        }
        addresses.lock().remove(0);
        let _following = connector.resolver().follow(&HashSet::from([upstream.host().into()]));
        // Both connections are used until the change is noticed.
        let left = async {
            loop {
                let checkout: Vec<_> = std::iter::from_fn(|| pool.checkout()).collect();
                if checkout.len() < 2 {
                    return checkout.len();
                }
                for connection in checkout {
                    let ReadyConnection::Http1(connection) = connection else { unreachable!() };
                    pool.put_idle(connection);
                }
                tokio::task::yield_now().await;
            }
        };
        let left = tokio::time::timeout(PATIENCE, left).await.expect("the change is seen");
        assert_eq!(left, 1, "the one to the address that stays");
    }

    #[tokio::test]
    async fn a_shared_connection_is_let_go_once_the_name_has_lost_its_address() {
        let (mut listeners, addresses, upstream) = listeners(&["127.0.0.1"]).await;
        serve_http2(listeners.remove(0));
        let (connector, pool) = (connector(&addresses), ConnectionPool::default());
        drop(pool.add_http2(shared_connection(&connector, &h2c(&upstream)).await));
        assert!(pool.checkout().is_some());
        *addresses.lock() = vec![SocketAddr::from(([127, 0, 0, 9], 0))];
        let _following = connector.resolver().follow(&HashSet::from([upstream.host().into()]));
        let let_go = async {
            while pool.checkout().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, let_go).await.unwrap();
    }

    /// Answers pings and accepts requests on every connection.
    fn serve_http2(listener: TcpListener) {
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while connection.accept().await.is_some() {}
                });
            }
        });
    }

    fn h2c(upstream: &Upstream) -> Upstream {
        format!("h2c://{}", upstream.authority).parse().unwrap()
    }

    async fn shared_connection(connector: &Connector, upstream: &Upstream) -> Http2Connection {
        match connector.connect(upstream, ConnectPurpose::Request, PATIENCE).await {
            Ok(NewConnection::Http2(connection)) => connection,
            Ok(NewConnection::Http1(_)) => panic!("it speaks HTTP/2"),
            Err(why) => panic!("no connection: {why}"),
        }
    }

    /// The addresses that the next requests go to.
    fn next_addresses(pool: &ConnectionPool, requests: usize) -> HashSet<IpAddr> {
        let places = (0..requests).filter_map(|_| pool.checkout_stream());
        places.filter_map(|checkout_stream| checkout_stream.connected_to()).collect()
    }

    #[tokio::test]
    async fn every_address_of_a_name_gets_a_shared_connection_and_they_take_turns() {
        let (mut listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]).await;
        listeners.drain(..).for_each(serve_http2);
        // The third address is added later, as when a service is scaled out.
        let third = addresses.lock().pop();
        let connector = connector(&addresses);
        let pool = Arc::new(ConnectionPool::default());
        let h2c = h2c(&upstream);
        drop(pool.add_http2(shared_connection(&connector, &h2c).await));
        let grown = async |count: usize| {
            while next_addresses(&pool, 12).len() < count {
                pool.add_missing_address(&connector, &h2c, PATIENCE);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, grown(2)).await.unwrap();
        addresses.lock().extend(third);
        let _following = connector.resolver().follow(&HashSet::from([h2c.host().into()]));
        let noticed = async {
            while pool.http2.lock().connected_if_incomplete().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, noticed).await.unwrap();
        pool.sweep();
        tokio::time::timeout(PATIENCE, grown(3)).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_takes_connections_and_says_nothing_costs_a_head_start() {
        let (mut listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2"]).await;
        serve_http2(listeners.remove(0));
        let connector = connector(&addresses);
        for _ in 0..4 {
            drop(shared_connection(&connector, &h2c(&upstream)).await);
        }
    }

    #[tokio::test]
    async fn a_connection_without_places_is_let_go() {
        let (mut listeners, addresses, upstream) = listeners(&["127.0.0.1"]).await;
        let listener = listeners.remove(0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut settings = h2::server::Builder::new();
                settings.max_concurrent_streams(0);
                tokio::spawn(async move {
                    let mut connection = settings.handshake::<_, bytes::Bytes>(stream).await.unwrap();
                    while connection.accept().await.is_some() {}
                });
            }
        });
        let (connector, pool) = (connector(&addresses), ConnectionPool::default());
        let connection = shared_connection(&connector, &h2c(&upstream)).await;
        assert!(pool.add_http2(connection).is_none());
        assert_eq!(pool.http2.lock().connections.len(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_this_machine_lacks_is_no_fault_of_the_upstream() {
        for (code, local) in [
            (23, true),
            (24, true),
            (12, true),
            (13, true),
            (98, true),
            (99, true),
            (105, true),
            (101, false),
            (104, false),
            (110, false),
            (111, false),
            (113, false),
        ] {
            let why = ConnectError::from(io::Error::from_raw_os_error(code));
            assert_eq!(why.is_local(), local, "{why}");
        }
    }
}
