//! Connections to one upstream that are kept for the next request.
//!
//! Each worker has its own, so that a connection never moves between threads and no lock is waited for.

use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;

use super::http1::Http1;
use crate::body::Upload;

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
    /// Carries many at once.
    Http2(http2::SendRequest<Upload>),
}

/// A connection that waits for work, and the sweeps it has seen. Counting them spares two looks at the clock for every
/// request.
type Parked = (Box<Http1>, u32);

/// The connections to one upstream.
#[derive(Default)]
pub(crate) struct Lines {
    parked: Mutex<Vec<Parked>>,
    shared: Mutex<Option<http2::SendRequest<Upload>>>,
}

impl Lines {
    /// A connection that stands already, if one does.
    pub(crate) fn standing(&self) -> Option<Line> {
        if let Some(sender) = self.shared() {
            return Some(Line::Http2(sender));
        }
        while let Some(mut line) = self.unpark() {
            if line.is_open() {
                return Some(Line::Http1(line));
            }
        }
        None
    }

    /// Keeps a connection for whoever comes next.
    pub(crate) fn keep(&self, line: Line) {
        match line {
            Line::Http2(sender) => *self.shared.lock() = Some(sender),
            Line::Http1(line) => {
                let mut parked = self.parked.lock();
                if parked.len() < MAX_PARKED {
                    parked.push((line, 0));
                }
            }
        }
    }

    /// Closes what has waited too long or was closed by the upstream.
    pub(crate) fn sweep(&self) {
        self.parked.lock().retain_mut(|(line, sweeps)| {
            *sweeps += 1;
            *sweeps <= MAX_SWEEPS && line.is_open()
        });
    }

    fn shared(&self) -> Option<http2::SendRequest<Upload>> {
        let mut shared = self.shared.lock();
        if shared.as_ref().is_some_and(http2::SendRequest::is_closed) {
            *shared = None;
        }
        shared.clone()
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
        lines.keep(Line::Http1(Box::new(Http1::new(Transport::Plain(stream)))));
        for _ in 0..4 {
            lines.sweep();
        }
        let used = lines.standing().expect("forty seconds are not too long");
        lines.keep(used);
        for _ in 0..4 {
            lines.sweep();
        }
        assert_eq!(lines.parked.lock().len(), 1, "use makes it young again");
        lines.sweep();
        assert!(lines.standing().is_none());
        assert!(SWEEP_INTERVAL * (MAX_SWEEPS + 1) <= Duration::from_secs(50));
    }
}
