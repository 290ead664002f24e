//! Why an attempt got no response, for HTTP/1.1 and HTTP/2 alike, and what that means for retries and health.

/// Why an attempt got no response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AttemptError {
    /// No connection could be opened.
    Unreachable,
    /// No connection could be opened because this machine lacks descriptors, ports or memory.
    NoLocalResources,
    /// No connection was opened, and that says nothing about the upstream: another request was still opening one, or
    /// the upstream does not offer the protocol that an upgrade needs.
    NotConnected,
    /// The request cannot be expressed in the protocol of the upstream.
    Unsendable,
    /// The upstream did not respond in time.
    TimedOut,
    /// The connection closed before any of the response arrived.
    Closed {
        /// Whether the upstream may have got some of the request.
        sent: bool,
    },
    /// The upstream says that it has not run the request: `REFUSED_STREAM`, or a `GOAWAY` for an earlier stream.
    NotProcessed,
    /// The response broke off, is malformed, or was cancelled by the upstream (`RST_STREAM`).
    InvalidResponse,
    /// The client did not send its whole body.
    RequestBody,
    /// The timeout for the whole exchange expired, and most of it was spent in the queue or waiting for the client.
    DeadlineExceeded,
}

impl AttemptError {
    /// The error in a few words, for logs.
    pub(crate) const fn cause(self) -> &'static str {
        match self {
            Self::Unreachable => "no connection could be opened",
            Self::NoLocalResources => "no descriptors, ports or memory are left on this machine",
            Self::NotConnected => "no connection of the kind that the request needs could be opened",
            Self::Unsendable => "the request cannot be sent in the upstream's protocol",
            Self::TimedOut => "it did not respond in time",
            Self::Closed { .. } => "it closed the connection before it responded",
            Self::NotProcessed => "it refused to process the request",
            Self::InvalidResponse => "its response broke off or is malformed",
            Self::RequestBody => "the client did not send its whole body",
            Self::DeadlineExceeded => "the time for the whole exchange was over",
        }
    }

    /// Whether it is certain that the upstream has not run the request.
    pub(crate) const fn did_not_run(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::NoLocalResources
                | Self::NotConnected
                | Self::Closed { sent: false }
                | Self::NotProcessed
        )
    }

    /// Whether the error counts against the health of the upstream. A `stale` connection, pooled and closed as soon as
    /// it was used, does not: the upstream had closed it earlier. Neither does a request that the upstream refuses, as
    /// it does while it drains.
    pub(crate) const fn is_upstreams_fault(self, stale: bool) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::InvalidResponse => true,
            Self::Closed { .. } => !stale,
            Self::NoLocalResources
            | Self::NotConnected
            | Self::Unsendable
            | Self::NotProcessed
            | Self::RequestBody
            | Self::DeadlineExceeded => false,
        }
    }
}
