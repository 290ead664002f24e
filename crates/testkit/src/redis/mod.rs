//! Real Redis servers for tests: each on free loopback ports, in a separate folder, stopped when dropped.
//!
//! Starting blocks the thread until the server answers. A server binary that is missing fails the test and says
//! how to get it; nothing is ever skipped.

mod certificates;
mod client;
mod cluster;
mod config;
mod flavour;
mod ports;
mod process;
mod sentinel;
mod server;

pub use certificates::Certificates;
pub use client::{RedisClient, RedisReply, ReplyError};
pub use cluster::{RedisCluster, Takeover};
pub use flavour::Flavour;
pub use ports::free as free_port;
pub use sentinel::RedisSentinel;
pub use server::{RedisServer, RedisServerBuilder};
