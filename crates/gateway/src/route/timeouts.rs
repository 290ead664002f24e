//! Timeouts of a route.

use std::time::Duration;

/// How long to wait for an upstream. All but `total` are timeouts on silence: they start again whenever bytes move.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// For opening a connection, with TLS. Default 5 s.
    pub connect: Duration,
    /// From the end of the request, or from the last frame of its body, to the header of the response. Default 30 s.
    pub first_byte: Duration,
    /// Between two frames of either body, or two reads of an upgraded connection. Default 60 s.
    pub idle: Duration,
    /// For the whole exchange with upstreams, with queueing and retries, until the end of the response. It does not
    /// apply to upgraded connections. No limit by default.
    pub total: Option<Duration>,
}

impl Timeouts {
    /// One timeout for every step.
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
