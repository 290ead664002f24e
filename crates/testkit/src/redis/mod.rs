//! Real Redis servers for tests: each on free loopback ports, in a folder of its own, stopped when dropped.
//!
//! Starting blocks the thread until the server answers. A server binary that is missing fails the test and says
//! how to get it; nothing is ever skipped.

mod config;
mod flavour;
mod ports;
mod process;
mod resp;
mod server;

pub use flavour::Flavour;
pub use resp::{Reply, ReplyError};
pub use server::{RedisServer, RedisServerBuilder};
