//! HTTP/2 over the `h2` crate, for both sides: how bodies arrive, how they are sent, and how clients are served.
//!
//! What is shared by the streams of one connection must not let one of them harm another: a stream never leaves frames
//! with its connection, and is never sent more than it has room for.

mod received;
mod sending;
mod server;

pub use received::Received;
pub use sending::{FIRST_READ, Paced, Sending, Unsent};
pub use server::MAX_WINDOW;
pub(crate) use server::serve;
