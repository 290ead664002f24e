//! A faulty network: a TCP proxy in front of a server, controlled by the test.
//!
//! It knows where one Redis reply ends and the next begins, but not what they mean.

mod exchange;
mod link;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use exchange::ReplyExchange;
use link::Link;

/// The treatment of the traffic. It can be switched at any time, and takes effect on open connections at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Every reply arrives this much later. Replies stay in order, and the delays do not add up.
    Delay(Duration),
    /// Replies arrive one byte at a time.
    OneByte,
    /// The connection closes in the middle of the next reply.
    CutMidReply,
    /// No bytes arrive on either side, and the connection stays open. It stays dead after the mode has changed, like a
    /// connection that a firewall has dropped.
    HalfOpen,
    /// Connections are reset, and so is every new one.
    Reset,
    /// Replies are replaced by bytes that are not a reply.
    Garbage,
    /// Two replies are swapped: with the next one on the same connection if there is one, otherwise with one on another
    /// connection, like a proxy that mixes up its clients.
    Swapped,
    /// Requests arrive, replies do not. A connection that lost a reply never delivers another one, because TCP has no
    /// gaps.
    DropReplies,
}

/// A running proxy. Dropping it closes every connection through it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    counts: Arc<ProxyCounters>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct ProxyCounters {
    dials: AtomicU64,
    open: AtomicUsize,
    struck: AtomicU64,
}

impl Proxy {
    /// Listens on a free loopback port, in front of the server at `upstream`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(upstream: &str) -> Self {
        let upstream: SocketAddr = upstream.parse().expect("an address and a port");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound address");
        let (mode, modes) = watch::channel(Mode::Pass);
        let counts = Arc::new(ProxyCounters::default());
        let acceptor = tokio::spawn(accept(listener, upstream, modes, Arc::clone(&counts)));
        Self { address, mode, counts, acceptor }
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `redis://…` by way of the proxy.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Switches the mode.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How many connections were accepted so far.
    pub fn dials(&self) -> u64 {
        self.counts.dials.load(Ordering::Relaxed)
    }

    /// How often a mode has affected a reply or a connection so far. [`Mode::Pass`] affects none.
    pub fn struck(&self) -> u64 {
        self.counts.struck.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Holds the links in a `JoinSet`, so that they end with this task.
async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    modes: watch::Receiver<Mode>,
    counts: Arc<ProxyCounters>,
) {
    let mut links = JoinSet::new();
    let exchange = Arc::<ReplyExchange>::default();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                counts.dials.fetch_add(1, Ordering::Relaxed);
                let link = Link::new(modes.clone(), Arc::clone(&exchange), Arc::clone(&counts));
                links.spawn(serve(client, upstream, link, Arc::clone(&counts)));
            }
            Some(_) = links.join_next() => {}
        }
    }
}

async fn serve(client: TcpStream, upstream: SocketAddr, link: Link, counts: Arc<ProxyCounters>) {
    counts.open.fetch_add(1, Ordering::Relaxed);
    let _closed = Closed(counts);
    if link.mode() == Mode::Reset {
        link.strike();
        let _ = client.set_zero_linger();
        return;
    }
    if let Ok(server) = TcpStream::connect(upstream).await {
        link.carry(client, server).await;
    }
}

/// Counts a link as closed when dropped, also if its task is aborted.
struct Closed(Arc<ProxyCounters>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
