//! HTTP/1.1 with an upstream, spoken in the task of the request itself.
//!
//! A request is written and its answer read where the client's connection is served: nothing is handed to another
//! task and back. What an upstream says is read strictly. An answer that two readers could take for two different
//! ones is refused, and a connection is used again only if nothing was left on it.

mod asked;
mod buffer;
mod chunked;
mod early;
mod framing;
mod head;
mod inbound;
mod line;
mod malformed;
mod outgoing;
mod text;
mod transport;

pub(crate) use asked::Asked;
pub(crate) use inbound::Inbound;
pub(crate) use line::Http1;
pub(crate) use transport::{Transport, Upgraded};
