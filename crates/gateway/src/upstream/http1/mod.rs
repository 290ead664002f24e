//! HTTP/1.1 with upstreams, in the task of the request.
//!
//! The request is written and the response read in the task that serves the client's connection, without handing
//! anything to another task. Responses are parsed strictly: one that two parsers could read differently is refused, and
//! a connection is used again only if no bytes are left on it.

mod body;
mod chunked;
mod connection;
mod early;
mod framing;
mod head;
mod read_buffer;
mod request_writer;
mod transport;
mod write_buffer;

pub(crate) use body::Http1Body;
pub(crate) use connection::Http1Connection;
pub(crate) use request_writer::{Http1Request, write_field};
pub(crate) use transport::{UpgradedUpstream, UpstreamIo};

/// Why a response is refused as malformed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedResponse(&'static str);
