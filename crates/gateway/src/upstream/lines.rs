//! Connections to one upstream that are kept for the next request.
//!
//! Each worker has its own, so that a connection never moves between threads and no lock is waited for.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::body::Upload;

/// Connections that wait for work at once; more are closed when their work is done.
const MAX_PARKED: usize = 512;
/// How long a connection waits for work. Below the minute after which common servers hang up, so that it is mostly
/// this side that does, and no request meets a connection that is just being closed.
const MAX_PARKED_FOR: Duration = Duration::from_secs(50);

/// A connection to an upstream.
pub(crate) enum Line {
    /// Carries one request at a time.
    Http1(http1::SendRequest<Upload>),
    /// Carries many at once.
    Http2(http2::SendRequest<Upload>),
}

/// A connection that waits for work, and since when.
type Parked = (http1::SendRequest<Upload>, Instant);

/// The connections to one upstream.
#[derive(Default)]
pub(crate) struct Lines {
    parked: Mutex<Vec<Parked>>,
    shared: Mutex<Option<http2::SendRequest<Upload>>>,
}

impl Lines {
    /// A connection that stands already, if one does, and how long it has had nothing to do.
    pub(crate) async fn standing(&self) -> Option<(Line, Duration)> {
        if let Some(sender) = self.shared() {
            return Some((Line::Http2(sender), Duration::ZERO));
        }
        while let Some((mut sender, since)) = self.unpark() {
            // The last answer has been read to its end; all that may be missing is that the connection notices.
            if sender.ready().await.is_ok() {
                return Some((Line::Http1(sender), since.elapsed()));
            }
        }
        None
    }

    /// Keeps a connection for whoever comes next.
    pub(crate) fn keep(&self, line: Line) {
        match line {
            Line::Http2(sender) => *self.shared.lock() = Some(sender),
            Line::Http1(sender) => {
                let mut parked = self.parked.lock();
                if parked.len() < MAX_PARKED && !sender.is_closed() {
                    parked.push((sender, Instant::now()));
                }
            }
        }
    }

    /// Closes what has waited too long.
    pub(crate) fn sweep(&self) {
        let is_fresh = |since: &Instant| since.elapsed() < MAX_PARKED_FOR;
        self.parked.lock().retain(|(sender, since)| is_fresh(since) && !sender.is_closed());
    }

    fn shared(&self) -> Option<http2::SendRequest<Upload>> {
        let mut shared = self.shared.lock();
        if shared.as_ref().is_some_and(http2::SendRequest::is_closed) {
            *shared = None;
        }
        shared.clone()
    }

    /// The connection that was parked last, for it is the least likely to have been closed meanwhile.
    fn unpark(&self) -> Option<Parked> {
        self.parked.lock().pop().filter(|(_, since)| since.elapsed() < MAX_PARKED_FOR)
    }
}

impl Line {
    pub(crate) const fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Sends a request. Where it comes back with the error, none of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Upload>>> {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        }
    }
}
