//! The embedded store: buckets in this process's memory, with the same decisions as every other store.
//!
//! It is bounded in keys and therefore in memory, and it never stops the world: locks are per shard, and each
//! new key tidies a few neighbours. It must not know about plans, policies or the network.
//! What it holds can be saved and restored: as bytes ([`MemoryStore::save`]), as a file ([`SnapshotFile`]), and again
//! and again while it is used ([`Keeper`]).

mod entry;
mod file;
mod fingerprint;
mod keeper;
mod shard;
mod snapshot;
mod store;
mod table;

pub use file::{FileError, SnapshotFile};
pub use keeper::Keeper;
pub use snapshot::{RestoreError, Saved};
pub use store::{Builder, MemoryStore, Spent, Usage};
