//! The way in: one accept loop, and one set of bounds, for every listener.
//!
//! A [`Listener`] accepts up to a number of connections, speaks TLS if it is asked to, hands each connection to a
//! [`Protocol`], and drains when it is told to stop. [`Http`] is the protocol of all that answer requests, over HTTP/1.1
//! and HTTP/2. It must not know what is answered, nor why.

mod body;
mod bounds;
mod client_stream;
mod date;
mod deadline;
mod drain;
mod framing;
mod guesses;
mod http;
mod http2;
mod idle;
mod linger;
mod listener;
mod metrics;
mod streams;
mod tls;
mod watched;

pub use body::{ClientBody, Interrupted, Unpaced};
pub use bounds::Bounds;
pub use deadline::Deadline;
pub use drain::Watcher;
pub use framing::is_only_chunked;
pub use guesses::{Guesses, TooMany};
pub use http::{Answer, Http};
pub use http2::{FIRST_READ, MAX_WINDOW, Paced, Received, Sending, Unsent};
pub use idle::Idle;
pub use listener::{Connection, Listener, Origin, Place, Protocol, Transport};
pub use metrics::RequestMetrics;
pub use tls::{Tls, TlsFiles, certified_key};
pub use watched::{LoadError, Watched};
