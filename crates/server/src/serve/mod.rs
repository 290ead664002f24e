//! `spile serve`: binds the sockets, opens every listener, runs until it is told to stop, and closes them in order.

mod doors;
mod listen;
mod server;

pub(crate) use doors::told_to;
pub use listen::{BindError, Listeners};
pub use server::Server;
