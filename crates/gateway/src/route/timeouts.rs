//! How long an upstream may take.

use std::time::Duration;

/// The waits of one route. Each but the last runs out on silence: as long as bytes move, a request may take its time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// For a connection to come about, TLS included. Default 5 s.
    pub connect: Duration,
    /// From the end of the request, or the last of its body to move, to the answer's header. Default 30 s.
    pub first_byte: Duration,
    /// Between two pieces of either body, and of an upgraded connection. Default 60 s.
    pub idle: Duration,
    /// From when the upstream is asked to the last of its answer, queue and retries included. Upgraded connections
    /// are not bound by it. Default none.
    pub total: Option<Duration>,
}

impl Timeouts {
    /// The same for each wait.
    pub(crate) const fn all(wait: Duration) -> Self {
        Self { connect: wait, first_byte: wait, idle: wait, total: None }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: None,
        }
    }
}
