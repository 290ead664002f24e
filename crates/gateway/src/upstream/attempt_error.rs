//! Why a request was not answered, whatever the protocol: the one place that says what such an end means.

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unanswered {
    /// No connection came about.
    Unreachable,
    /// No connection came about for want of something on this machine: descriptors, ports, memory.
    Local,
    /// No connection came about, which says nothing about the upstream: others were setting one up, or an upgrade wanted
    /// one that it does not offer.
    Unconnected,
    /// The request cannot be written in the upstream's protocol.
    Unsendable,
    /// The upstream was silent for too long.
    Silent,
    /// The connection ended before anything of an answer arrived.
    Closed {
        /// Whether the upstream may have got any of the request.
        sent: bool,
    },
    /// The upstream says that it has not run the request: `REFUSED_STREAM`, or a `GOAWAY` with an earlier last stream.
    NotProcessed,
    /// The answer broke off, cannot be read in one way only, or was called off by the upstream (`RST_STREAM`).
    Unreadable,
    /// The client did not deliver its body.
    Undelivered,
    /// The time for all of the request ran out, and most of it went by in our queue or waiting for the client.
    OutOfTime,
}

impl Unanswered {
    /// Whether it is certain that the upstream has not run the request.
    pub(crate) const fn did_not_run(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::Local
                | Self::Unconnected
                | Self::Closed { sent: false }
                | Self::NotProcessed
        )
    }

    /// Whether it says that the upstream is not well. A `stale` connection, kept and closed as soon as it was used again,
    /// does not: the upstream had closed it before. Nor does a request that the upstream turned away, as while it drains.
    pub(crate) const fn is_upstreams_fault(self, stale: bool) -> bool {
        match self {
            Self::Unreachable | Self::Silent | Self::Unreadable => true,
            Self::Closed { .. } => !stale,
            Self::Local
            | Self::Unconnected
            | Self::Unsendable
            | Self::NotProcessed
            | Self::Undelivered
            | Self::OutOfTime => false,
        }
    }
}
