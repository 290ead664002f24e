//! New connections to upstreams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::address::{Protocol, Upstream};
use super::attempt_error::Unanswered;
use super::connection_pool::NewLine;
use super::http1::{Http1, Transport};
use super::http2::Http2;
use super::resolver::{Answer, Name, Reached, Resolver};
use super::tls::UpstreamTls;

/// How long one address of a name has to itself before the next is tried beside it (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// How often it is said that this machine has no room for another connection.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Opens connections within a time.
#[derive(Clone)]
pub(crate) struct Dialer {
    /// For upstreams that have no settings of their own.
    tls: UpstreamTls,
    resolver: Arc<Resolver>,
    /// Bytes of one answer over HTTP/2 that may arrive before the client takes them.
    stream_window: u32,
    /// When it was last said that this machine has no room for another connection.
    told: Arc<Mutex<Option<Instant>>>,
}

/// What a new connection is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    Request,
    /// It is to become another protocol, which one of HTTP/2 cannot.
    Upgrade,
    /// Requests, at an address other than these.
    Elsewhere(&'a [IpAddr]),
}

impl<'a> Purpose<'a> {
    /// Addresses that will not do.
    const fn others(self) -> &'a [IpAddr] {
        match self {
            Self::Request | Self::Upgrade => &[],
            Self::Elsewhere(others) => others,
        }
    }
}

/// Why no connection came about. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// This machine has no descriptors, ports or memory left, or forbids the connection.
    #[error("this machine cannot open another connection: {0}")]
    Local(io::Error),
    #[error(transparent)]
    Io(io::Error),
    #[error(transparent)]
    Http(#[from] h2::Error),
}

impl DialError {
    /// Whether it says something about this machine and nothing about the upstream.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// What it means for the request.
    pub(crate) const fn outcome(&self) -> Unanswered {
        if self.is_local() { Unanswered::Local } else { Unanswered::Unreachable }
    }
}

impl From<io::Error> for DialError {
    fn from(why: io::Error) -> Self {
        if is_local(&why) { Self::Local(why) } else { Self::Io(why) }
    }
}

impl Dialer {
    pub(crate) fn new(tls: UpstreamTls, resolver: Resolver, stream_window: u32) -> Self {
        Self { tls, resolver: Arc::new(resolver), stream_window, told: Arc::default() }
    }

    pub(crate) const fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }

    /// A new connection to the upstream.
    pub(crate) async fn dial(
        &self,
        upstream: &Upstream,
        purpose: Purpose<'_>,
        within: Duration,
    ) -> Result<NewLine, DialError> {
        let dialing = tokio::time::timeout(within, self.open(upstream, purpose));
        let dialed = dialing.await.unwrap_or(Err(DialError::TimedOut(within)));
        if let Err(why @ DialError::Local(_)) = &dialed {
            self.tell(why);
        }
        dialed
    }

    async fn open(&self, upstream: &Upstream, purpose: Purpose<'_>) -> Result<NewLine, DialError> {
        if let Some(path) = &upstream.socket {
            return self.open_socket(upstream, path).await;
        }
        if let Ok(address) = upstream.host().parse::<IpAddr>() {
            return self.set_up(upstream, SocketAddr::new(address, upstream.port()), purpose).await;
        }
        let (name, answer) = self.resolver.resolve(upstream.host()).await?;
        let mut doubt = Doubt(Some(&name));
        let (line, address) = self.race(upstream, &answer, purpose).await?;
        doubt.0 = None;
        Ok(line.at(Reached::new(Arc::clone(&name), address)))
    }

    async fn open_socket(&self, upstream: &Upstream, path: &Path) -> Result<NewLine, DialError> {
        // Not allowed to open a file is something about that file, and so about this upstream.
        let stream = UnixStream::connect(path).await.map_err(|why| match why.kind() {
            io::ErrorKind::PermissionDenied => DialError::Io(why),
            _ => why.into(),
        })?;
        match upstream.protocol {
            Protocol::Http2 => self.http2_line(stream).await,
            Protocol::Http1 | Protocol::Tls => Ok(http1_line(Transport::Unix(stream))),
        }
    }

    /// A connection to whichever address is ready for requests first. The next is tried as soon as one fails, or is slow.
    async fn race(
        &self,
        upstream: &Upstream,
        answer: &Answer,
        purpose: Purpose<'_>,
    ) -> Result<(NewLine, IpAddr), DialError> {
        let port = upstream.port();
        let (mut waiting, mut under_way) =
            (answer.in_turn(purpose.others()).into_iter(), FuturesUnordered::new());
        let (mut latest, mut failure) = (None, None);
        loop {
            if let Some(address) = waiting.next() {
                latest = Some(address);
                under_way
                    .push(async move { (address, self.set_up(upstream, address.at(port), purpose).await) });
            }
            let head_start = if waiting.len() == 0 { Duration::MAX } else { HEAD_START };
            match tokio::time::timeout(head_start, under_way.next()).await {
                Ok(Some((address, Ok(line)))) => {
                    address.took(true);
                    return Ok((line, address.at(port).ip()));
                }
                Ok(Some((address, Err(why)))) => {
                    address.took(false);
                    // An address of a family that this machine does not have says nothing about the others.
                    if failure.is_none() || !why.is_local() {
                        failure = Some(why);
                    }
                }
                Ok(None) => {
                    return Err(failure.unwrap_or_else(|| DialError::Io(io::ErrorKind::NotFound.into())));
                }
                Err(_) => latest.iter().for_each(|address| address.took(false)),
            }
        }
    }

    /// A connection to this address that is ready for requests.
    async fn set_up(
        &self,
        upstream: &Upstream,
        address: SocketAddr,
        purpose: Purpose<'_>,
    ) -> Result<NewLine, DialError> {
        let stream = TcpStream::connect(address).await?;
        // Requests are written whole: waiting to fill a segment would only delay them.
        stream.set_nodelay(true)?;
        match upstream.protocol {
            Protocol::Http1 => Ok(http1_line(Transport::Plain(stream))),
            Protocol::Http2 => self.http2_line(stream).await,
            Protocol::Tls => self.set_up_tls(upstream, stream, purpose).await,
        }
    }

    async fn set_up_tls(
        &self,
        upstream: &Upstream,
        stream: TcpStream,
        purpose: Purpose<'_>,
    ) -> Result<NewLine, DialError> {
        let tls = upstream.tls.as_ref().unwrap_or(&self.tls);
        let name = match tls.server_name() {
            Some(name) => name.clone(),
            None => ServerName::try_from(upstream.host().to_owned()).map_err(io::Error::other)?,
        };
        let clients = tls.clients();
        let client = match purpose {
            Purpose::Upgrade => &clients.only_http1,
            Purpose::Request | Purpose::Elsewhere(_) => &clients.either_version,
        };
        let stream = TlsConnector::from(Arc::clone(client)).connect(name, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.http2_line(stream).await
        } else {
            Ok(http1_line(Transport::Tls(Box::new(stream))))
        }
    }

    async fn http2_line(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<NewLine, DialError> {
        Ok(NewLine::Http2(Http2::open(stream, self.stream_window).await?))
    }

    fn tell(&self, why: &DialError) {
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(target: "spile::upstreams", "{why}; requests are answered with 503");
        }
    }
}

/// Whether a connection failed for want of something on this machine, whatever the other side is like.
fn is_local(why: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, OutOfMemory, PermissionDenied};
    // What runs out without a kind of its own: descriptors of the machine and of the process, and buffers.
    const NFILE: i32 = 23;
    const MFILE: i32 = 24;
    const NOBUFS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };
    matches!(why.kind(), AddrInUse | AddrNotAvailable | OutOfMemory | PermissionDenied)
        || matches!(why.raw_os_error(), Some(NFILE | MFILE | NOBUFS))
}

fn http1_line(transport: Transport) -> NewLine {
    NewLine::Http1(Box::new(Http1::new(transport)))
}

/// Has a name looked up again, unless a connection to one of its addresses came about.
struct Doubt<'n>(Option<&'n Name>);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.0 {
            name.doubt();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::upstream::{Line, Lines, Roots};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A dialer for which every name has the addresses of the moment.
    fn dialer(addresses: &Arc<Mutex<Vec<SocketAddr>>>) -> Dialer {
        let addresses = Arc::clone(addresses);
        let resolver = Resolver::new(Box::new(move |_| {
            let now = addresses.lock().clone();
            Box::pin(async move { Ok(now) })
        }));
        Dialer::new(UpstreamTls::trusting(&Roots::Only(Vec::new())).unwrap(), resolver, 65_535)
    }

    /// Listeners on one port of several addresses of this machine, and an upstream that is called by a name.
    async fn listeners(hosts: &[&str]) -> (Vec<TcpListener>, Arc<Mutex<Vec<SocketAddr>>>, Upstream) {
        let (all, port) = loop {
            let first = TcpListener::bind((hosts[0], 0)).await.unwrap();
            let port = first.local_addr().unwrap().port();
            let others = hosts[1..].iter().map(|host| TcpListener::bind((*host, port)));
            // Another program may have the port at one of the addresses.
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
        let dialer = dialer(&addresses);
        let mut lines = Vec::new();
        for _ in 0..20 {
            lines.push(dialer.dial(&upstream, Purpose::Request, PATIENCE).await.unwrap());
        }
        // All of them wait to be accepted by now. An address that a busy machine was slow to reach loses its turn.
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
        // A queue that is full takes no more: the kernel drops what asks to be let in.
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
        let dialer = dialer(&addresses);
        for _ in 0..6 {
            let NewLine::Http1(_) = dialer.dial(&upstream, Purpose::Request, PATIENCE).await.unwrap() else {
                unreachable!()
            };
            tokio::time::timeout(PATIENCE, listeners[0].accept()).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_the_name_no_longer_has_is_not_used_again() {
        let (listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2"]).await;
        let dialer = dialer(&addresses);
        let lines = Lines::default();
        let mut accepted = Vec::new();
        for _ in 0..2 {
            let NewLine::Http1(line) = dialer.dial(&upstream, Purpose::Request, PATIENCE).await.unwrap()
            else {
                unreachable!()
            };
            lines.park(line);
        }
        for listener in &listeners {
            accepted.push(listener.accept().await.unwrap());
        }
        addresses.lock().remove(0);
        let _following = dialer.resolver().follow(&HashSet::from([upstream.host().into()]));
        // Until the change is seen, both are used.
        let left = async {
            loop {
                let standing: Vec<_> = std::iter::from_fn(|| lines.standing()).collect();
                if standing.len() < 2 {
                    return standing.len();
                }
                for line in standing {
                    let Line::Http1(line) = line else { unreachable!() };
                    lines.park(line);
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
        let (dialer, lines) = (dialer(&addresses), Lines::default());
        drop(lines.share(shared_line(&dialer, &h2c(&upstream)).await));
        assert!(lines.standing().is_some());
        *addresses.lock() = vec![SocketAddr::from(([127, 0, 0, 9], 0))];
        let _following = dialer.resolver().follow(&HashSet::from([upstream.host().into()]));
        let let_go = async {
            while lines.standing().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, let_go).await.unwrap();
    }

    /// Answers pings and takes requests, on every connection that comes.
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

    async fn shared_line(dialer: &Dialer, upstream: &Upstream) -> Http2 {
        match dialer.dial(upstream, Purpose::Request, PATIENCE).await {
            Ok(NewLine::Http2(line)) => line,
            Ok(NewLine::Http1(_)) => panic!("it speaks HTTP/2"),
            Err(why) => panic!("no connection: {why}"),
        }
    }

    /// Which addresses the next requests go to.
    fn next_addresses(lines: &Lines, requests: usize) -> HashSet<IpAddr> {
        let places = (0..requests).filter_map(|_| lines.place());
        places.filter_map(|place| place.reached()).collect()
    }

    #[tokio::test]
    async fn every_address_of_a_name_gets_a_shared_connection_and_they_take_turns() {
        let (mut listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]).await;
        listeners.drain(..).for_each(serve_http2);
        // The third is added later, as when a service is scaled out.
        let third = addresses.lock().pop();
        let dialer = dialer(&addresses);
        let lines = Arc::new(Lines::default());
        let h2c = h2c(&upstream);
        drop(lines.share(shared_line(&dialer, &h2c).await));
        let grown = async |count: usize| {
            while next_addresses(&lines, 12).len() < count {
                lines.grow(&dialer, &h2c, PATIENCE);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, grown(2)).await.unwrap();
        addresses.lock().extend(third);
        let _following = dialer.resolver().follow(&HashSet::from([h2c.host().into()]));
        let noticed = async {
            while lines.shared.lock().connected_if_others().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, noticed).await.unwrap();
        lines.sweep();
        tokio::time::timeout(PATIENCE, grown(3)).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_takes_connections_and_says_nothing_costs_a_head_start() {
        let (mut listeners, addresses, upstream) = listeners(&["127.0.0.1", "127.0.0.2"]).await;
        serve_http2(listeners.remove(0));
        let dialer = dialer(&addresses);
        for _ in 0..4 {
            drop(shared_line(&dialer, &h2c(&upstream)).await);
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
        let (dialer, lines) = (dialer(&addresses), Lines::default());
        let line = shared_line(&dialer, &h2c(&upstream)).await;
        assert!(lines.share(line).is_none());
        assert_eq!(lines.shared.lock().connections.len(), 0);
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
            let why = DialError::from(io::Error::from_raw_os_error(code));
            assert_eq!(why.is_local(), local, "{why}");
        }
    }
}
