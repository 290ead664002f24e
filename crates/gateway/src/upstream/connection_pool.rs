//! Connections to one upstream that are kept for the next request.
//!
//! Each worker has its own, so that a connection never moves between threads and no lock is waited for.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as DialLock, MutexGuard};

use super::address::Upstream;
use super::connector::{Dialer, Purpose};
use super::http1::Http1;
use super::http2::{Http2, Http2Stream};
use super::resolver::Reached;

/// Connections that wait for work at once; more are closed when their work is done.
const MAX_PARKED: usize = 512;
/// How often connections that wait for work are looked after.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Sweeps that a connection outlives while it waits. It ends after 40 to 50 seconds, below the minute after which common
/// servers hang up, so that it is mostly this side that does, and no request meets one that is just being closed.
const MAX_SWEEPS: u32 = 4;

/// How long an address that took no connection is left alone, while others of its name serve.
const GROW_PAUSE: Duration = Duration::from_secs(5);

/// A connection to an upstream.
pub(crate) enum Line {
    /// Carries one request at a time.
    Http1(Box<Http1>),
    /// A place on one that carries many at once.
    Http2(Http2Stream),
}

/// A connection that has just come about.
pub(crate) enum NewLine {
    Http1(Box<Http1>),
    Http2(Http2),
}

impl NewLine {
    /// The same, which leads to this address of a name.
    pub(crate) fn at(self, reached: Reached) -> Self {
        match self {
            Self::Http1(line) => Self::Http1(Box::new(line.at(reached))),
            Self::Http2(line) => Self::Http2(line.at(reached)),
        }
    }
}

/// A connection that waits for work, and the sweeps it has seen. Counting them spares two looks at the clock for every
/// request.
type Parked = (Box<Http1>, u32);

/// The connections to one upstream.
#[derive(Default)]
pub(crate) struct Lines {
    parked: Mutex<Vec<Parked>>,
    pub(super) shared: Mutex<Shared>,
    /// Held while a connection that others can share is being set up, because there is none.
    dial_lock: DialLock<()>,
    /// Whether the last new connection carries one request at a time.
    exclusive: AtomicBool,
    /// Whether the upstream may have an address that no shared connection leads to.
    may_lack: AtomicBool,
    /// Whether a connection to such an address is being set up.
    growing: AtomicBool,
}

/// Connections that carry many requests at once.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) connections: Vec<Http2>,
    /// Counts up with each request, if there are several addresses to take turns.
    turn: usize,
}

impl Lines {
    /// A connection that stands already, if one does that can take a request.
    pub(crate) fn standing(&self) -> Option<Line> {
        if let Some(stream) = self.place() {
            return Some(Line::Http2(stream));
        }
        while let Some(mut line) = self.unpark() {
            if line.is_open() {
                return Some(Line::Http1(line));
            }
        }
        None
    }

    /// A place on a shared connection, if there is one.
    pub(crate) fn place(&self) -> Option<Http2Stream> {
        let mut shared = self.shared.lock();
        let (place, closed) = shared.place();
        if closed {
            self.may_lack.store(true, Ordering::Relaxed);
        }
        place
    }

    /// Waits until no other request sets up a connection that could be shared.
    pub(crate) async fn lock_dial(&self) -> MutexGuard<'_, ()> {
        self.dial_lock.lock().await
    }

    /// Keeps a connection for the next request.
    pub(crate) fn park(&self, line: Box<Http1>) {
        let mut parked = self.parked.lock();
        if parked.len() < MAX_PARKED {
            parked.push((line, 0));
        }
    }

    /// Lets a connection be used by all requests that it has places for, and takes the first of them. One without any is
    /// let go.
    pub(crate) fn share(&self, line: Http2) -> Option<Http2Stream> {
        self.exclusive.store(false, Ordering::Relaxed);
        let first = line.begin()?;
        self.shared.lock().connections.push(line);
        self.may_lack.store(true, Ordering::Relaxed);
        Some(first)
    }

    /// Whether new connections are likely to carry many requests at once, as the last one did.
    pub(crate) fn are_shared(&self) -> bool {
        !self.exclusive.load(Ordering::Relaxed)
    }

    /// A new connection turned out to carry one request at a time.
    pub(crate) fn are_not_shared(&self) {
        self.exclusive.store(true, Ordering::Relaxed);
    }

    /// Sets up a connection to an address of the upstream's name that has none, beside what goes on. Requests are served
    /// over those that stand: an address that takes connections and then says nothing must not keep them waiting.
    pub(crate) fn grow(self: &Arc<Self>, dialer: &Dialer, upstream: &Upstream, within: Duration) {
        if !self.may_lack.load(Ordering::Relaxed) || self.growing.swap(true, Ordering::Relaxed) {
            return;
        }
        self.may_lack.store(false, Ordering::Relaxed);
        let Some(connected) = self.shared.lock().connected_if_others() else {
            self.growing.store(false, Ordering::Relaxed);
            return;
        };
        let (lines, dialer, upstream) = (Arc::clone(self), dialer.clone(), upstream.clone());
        tokio::spawn(async move {
            let dialled = dialer.dial(&upstream, Purpose::Elsewhere(&connected), within).await;
            let shared = match dialled {
                Ok(NewLine::Http2(line)) => lines.share(line).is_some(),
                Ok(NewLine::Http1(_)) | Err(_) => false,
            };
            if !shared {
                tokio::time::sleep(GROW_PAUSE).await;
                lines.may_lack.store(true, Ordering::Relaxed);
            }
            lines.growing.store(false, Ordering::Relaxed);
        });
    }

    /// Closes what has waited too long or was closed by the upstream.
    pub(crate) fn sweep(&self) {
        self.parked.lock().retain_mut(|(line, sweeps)| {
            *sweeps += 1;
            *sweeps <= MAX_SWEEPS && line.is_open()
        });
        self.shared.lock().connections.retain(|line| line.is_open() && line.sweep() <= MAX_SWEEPS);
        // The name may have other addresses than when this was last looked at.
        self.may_lack.store(true, Ordering::Relaxed);
    }

    /// The connection that was parked last, for it is the least likely to have been closed meanwhile.
    fn unpark(&self) -> Option<Box<Http1>> {
        self.parked.lock().pop().map(|(line, _)| line)
    }
}

impl Shared {
    /// A place on the first connection that has one: the others get the chance to rest, and to end. If the upstream has
    /// several addresses, their connections take turns. Says also whether one was found to be closed.
    fn place(&mut self) -> (Option<Http2Stream>, bool) {
        let mut closed = false;
        while let Some(first) = self.connections.first() {
            let count = self.connections.len();
            self.turn = if first.addresses() > 1 { self.turn.wrapping_add(1) } else { 0 };
            let mut in_turn = (0..count).map(|step| (self.turn % count + step) % count);
            let open = in_turn.find_map(|index| {
                let line = &self.connections[index];
                if line.is_open() { line.begin().map(Ok) } else { Some(Err(index)) }
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

    /// The addresses that connections lead to, if the upstream's name has others.
    pub(super) fn connected_if_others(&self) -> Option<Vec<IpAddr>> {
        let first = self.connections.first()?.reached()?;
        let reached = self.connections.iter().filter_map(Http2::reached);
        let connected: Vec<IpAddr> = reached.map(Reached::address).collect();
        first.has_others_than(&connected).then_some(connected)
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("parked", &self.parked.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::upstream::http1::Transport;

    #[tokio::test]
    async fn a_connection_that_is_not_used_ends_within_fifty_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_upstream, _) = listener.accept().await.unwrap();
        let lines = Lines::default();
        lines.park(Box::new(Http1::new(Transport::Plain(stream))));
        for _ in 0..4 {
            lines.sweep();
        }
        let Some(Line::Http1(used)) = lines.standing() else { panic!("forty seconds are not too long") };
        lines.park(used);
        for _ in 0..4 {
            lines.sweep();
        }
        assert_eq!(lines.parked.lock().len(), 1, "use makes it young again");
        lines.sweep();
        assert!(lines.standing().is_none());
        assert!(SWEEP_INTERVAL * (MAX_SWEEPS + 1) <= Duration::from_secs(50));
    }
}
