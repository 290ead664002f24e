//! HTTP/1.1 with an upstream, spoken in the task of the request itself.
//!
//! A request is written and its answer read where the client's connection is served: nothing is handed to another
//! task and back. What an upstream says is read strictly. An answer that two readers could take for two different
//! ones is refused, and a connection is used again only if nothing was left on it.

mod asked;
mod body;
mod chunked;
mod connection;
mod early;
mod framing;
mod head;
mod malformed;
mod read_buffer;
mod request_writer;
mod transport;
mod write_buffer;

pub(crate) use asked::Asked;
pub(crate) use body::Inbound;
pub(crate) use connection::Http1;
pub(crate) use transport::{Transport, Upgraded};
