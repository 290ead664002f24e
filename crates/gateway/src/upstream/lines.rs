//! Connections to one upstream that are kept for the next request.
//!
//! Each worker has its own, so that a connection never moves between threads and no lock is waited for.

use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::http1::Http1;
use crate::body::Upload;

/// Connections that wait for work at once; more are closed when their work is done.
const MAX_PARKED: usize = 512;
/// How long a connection waits for work. Below the minute after which common servers hang up, so that it is mostly
/// this side that does, and no request meets a connection that is just being closed.
const MAX_PARKED_FOR: Duration = Duration::from_secs(50);

/// A connection to an upstream.
pub(crate) enum Line {
    /// Carries one request at a time.
    Http1(Box<Http1>),
    /// Carries many at once.
    Http2(http2::SendRequest<Upload>),
}

/// A connection that waits for work, and since when.
type Parked = (Box<Http1>, Instant);

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
                    parked.push((line, Instant::now()));
                }
            }
        }
    }

    /// Closes what has waited too long or was closed by the upstream.
    pub(crate) fn sweep(&self) {
        self.parked.lock().retain_mut(|(line, since)| since.elapsed() < MAX_PARKED_FOR && line.is_open());
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
        let (line, since) = self.parked.lock().pop()?;
        (since.elapsed() < MAX_PARKED_FOR).then_some(line)
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("parked", &self.parked.lock().len()).finish_non_exhaustive()
    }
}
