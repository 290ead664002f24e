//! HTTP/2 with the `h2` crate: receiving and sending bodies, for clients and upstreams, and serving clients.
//!
//! One stream of a connection must not harm another. So a stream never leaves received frames in the buffer of its
//! connection, and never passes more to the connection than the other side has window for.

mod date;
mod receive_body;
mod send_body;
mod server;
mod streams;

pub use self::receive_body::ReceiveBody;
pub use self::send_body::{FIRST_READ, PacedBody, SendBody, SendBodyError};
pub use self::server::MAX_WINDOW;
pub(crate) use self::server::serve;
pub(crate) use self::streams::StreamTracker;
