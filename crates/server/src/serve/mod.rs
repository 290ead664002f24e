//! `spile serve`: binds the sockets, opens every listener, runs until it is asked to stop, and closes them in order.

mod descriptors;
mod listen;
mod listener_set;
mod server;

pub(crate) use descriptors::{ConnectionShares, raise_limit};
pub use listen::{BindError, Listeners};
pub(crate) use listener_set::stop_requested;
pub use server::Server;
