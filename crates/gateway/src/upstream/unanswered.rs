//! Why a request was not answered, whatever the protocol: the one place that says what such an end means.

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unanswered {
    /// No connection came about.
    Unreachable,
    /// No connection came about for want of something on this machine: descriptors, ports, memory.
    NoRoom,
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
}

impl Unanswered {
    /// Whether it is certain that the upstream has not run the request.
    pub(crate) const fn did_not_run(self) -> bool {
        matches!(self, Self::Unreachable | Self::NoRoom | Self::Closed { sent: false } | Self::NotProcessed)
    }

    /// Whether it says that the upstream is not well. On a `kept` connection a close says nothing: the upstream may have
    /// closed it before the request arrived. Nor does a request that the upstream turned away while it drains.
    pub(crate) const fn is_upstreams_fault(self, kept: bool) -> bool {
        match self {
            Self::Unreachable | Self::Silent | Self::Unreadable => true,
            Self::Closed { .. } => !kept,
            Self::NoRoom | Self::NotProcessed | Self::Undelivered => false,
        }
    }
}
