//! A network that misbehaves on command: a TCP proxy in front of a server, inside the test.
//!
//! It knows enough of the Redis protocol to tell where one reply ends and the next begins, and nothing of what
//! they mean.

mod exchange;
mod link;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use exchange::Exchange;
use link::Link;

/// What happens to the traffic. Switched while connections are open, and felt by them at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Every reply arrives this much later; replies stay in order and none waits for another.
    Delay(Duration),
    /// Replies arrive one byte at a time.
    OneByte,
    /// The connection closes in the middle of the next reply.
    CutMidReply,
    /// Nothing arrives on either side and nobody is told. A connection that has been through this stays dead, as
    /// where a firewall has forgotten it.
    HalfOpen,
    /// Connections are reset, and so is every new one.
    Reset,
    /// Replies are replaced by bytes that are none.
    Garbage,
    /// Two replies trade places: with the next on the same connection where two are under way, else with one on
    /// another connection, as a proxy that mixes up its clients would do.
    Swapped,
    /// Requests arrive and replies do not. A connection that lost a reply never delivers another: TCP has no gaps.
    DropReplies,
}

/// A running proxy. Dropping it closes every connection through it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    counts: Arc<Counts>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counts {
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
        let counts = Arc::new(Counts::default());
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

    /// Changes the weather.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How many connections have been asked for so far.
    pub fn dials(&self) -> u64 {
        self.counts.dials.load(Ordering::Relaxed)
    }

    /// How often a mode has done its damage so far, to a reply or to a connection. [`Mode::Pass`] does none.
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

/// Holds the links in a set of its own, so that they end with it.
async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    modes: watch::Receiver<Mode>,
    counts: Arc<Counts>,
) {
    let mut links = JoinSet::new();
    let exchange = Arc::<Exchange>::default();
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

async fn serve(client: TcpStream, upstream: SocketAddr, link: Link, counts: Arc<Counts>) {
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

/// Counts a link out however it ends, also where its task is aborted.
struct Closed(Arc<Counts>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
