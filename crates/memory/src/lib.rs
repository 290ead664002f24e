//! The embedded store: buckets in this process's memory, with the same decisions as every other store.
//!
//! It is bounded in keys and therefore in memory, and it never stops the world: locks are per shard, and each
//! new key tidies a few neighbours. It must not know about plans, policies or the network.

mod entry;
mod fingerprint;
mod shard;
mod store;
mod table;

pub use store::{Builder, MemoryStore, Spent, Usage};
