//! `spile serve`: binds the sockets, opens every listener, runs until it is told to stop, and closes them in order.

mod listen;
mod listener_set;
mod server;

pub use listen::{BindError, Listeners};
pub(crate) use listener_set::stop_requested;
pub use server::Server;
