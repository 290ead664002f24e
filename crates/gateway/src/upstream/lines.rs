//! Connections to one upstream that are kept for the next request.
//!
//! Each worker has its own, so that a connection never moves between threads and no lock is waited for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, MutexGuard};

use super::http1::Http1;
use super::http2::{Http2, Http2Stream};

/// Connections that wait for work at once; more are closed when their work is done.
const MAX_PARKED: usize = 512;
/// How often connections that wait for work are looked after.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Sweeps that a connection outlives while it waits. It ends after 40 to 50 seconds, below the minute after which common
/// servers hang up, so that it is mostly this side that does, and no request meets one that is just being closed.
const MAX_SWEEPS: u32 = 4;

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

/// A connection that waits for work, and the sweeps it has seen. Counting them spares two looks at the clock for every
/// request.
type Parked = (Box<Http1>, u32);

/// The connections to one upstream.
#[derive(Default)]
pub(crate) struct Lines {
    parked: Mutex<Vec<Parked>>,
    shared: Mutex<Vec<Http2>>,
    /// Counts up with each request over a shared connection, where there are several to take turns.
    turn: AtomicUsize,
    /// Held while a connection that others can share is being set up.
    dialing: Turns<()>,
    /// Whether the last new connection carries one request at a time.
    exclusive: AtomicBool,
}

impl Lines {
    /// A connection that stands already, if one does that can take a request.
    pub(crate) fn standing(&self) -> Option<Line> {
        if let Some(stream) = self.shared() {
            return Some(Line::Http2(stream));
        }
        while let Some(mut line) = self.unpark() {
            if line.is_open() {
                return Some(Line::Http1(line));
            }
        }
        None
    }

    /// Waits until no other connection that could be shared is being set up.
    pub(crate) async fn turn_to_dial(&self) -> MutexGuard<'_, ()> {
        self.dialing.lock().await
    }

    /// Keeps a connection for the next request.
    pub(crate) fn park(&self, line: Box<Http1>) {
        let mut parked = self.parked.lock();
        if parked.len() < MAX_PARKED {
            parked.push((line, 0));
        }
    }

    /// Lets a connection be used by all requests that it has places for. The first of them is taken.
    pub(crate) fn share(&self, line: Http2) -> Option<Http2Stream> {
        self.exclusive.store(false, Ordering::Relaxed);
        let first = line.begin();
        self.shared.lock().push(line);
        first
    }

    /// Whether new connections are likely to carry many requests at once, as the last one did.
    pub(crate) fn are_shared(&self) -> bool {
        !self.exclusive.load(Ordering::Relaxed)
    }

    /// A new connection turned out to carry one request at a time.
    pub(crate) fn are_not_shared(&self) {
        self.exclusive.store(true, Ordering::Relaxed);
    }

    /// Closes what has waited too long or was closed by the upstream.
    pub(crate) fn sweep(&self) {
        self.parked.lock().retain_mut(|(line, sweeps)| {
            *sweeps += 1;
            *sweeps <= MAX_SWEEPS && line.is_open()
        });
        self.shared.lock().retain(|line| line.is_open() && line.sweep() <= MAX_SWEEPS);
    }

    /// A place on the first connection that has one. The others get the chance to rest, and to end. If the upstream has
    /// several addresses, there is a connection for each, and they take turns.
    fn shared(&self) -> Option<Http2Stream> {
        let mut shared = self.shared.lock();
        shared.retain(Http2::is_open);
        match shared.first()?.addresses() {
            addresses if shared.len() < addresses => None,
            1 => shared.iter().find_map(Http2::begin),
            _ => self.place_in_turn(&shared),
        }
    }

    fn place_in_turn(&self, shared: &[Http2]) -> Option<Http2Stream> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % shared.len();
        let (before, after) = shared.split_at(turn);
        after.iter().chain(before).find_map(Http2::begin)
    }

    /// A place on any shared connection, though there should be more of them.
    pub(crate) fn any_place(&self) -> Option<Http2Stream> {
        self.shared.lock().iter().filter(|line| line.is_open()).find_map(Http2::begin)
    }

    /// The connection that was parked last, for it is the least likely to have been closed meanwhile.
    fn unpark(&self) -> Option<Box<Http1>> {
        self.parked.lock().pop().map(|(line, _)| line)
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
