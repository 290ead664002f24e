//! The embedded store: buckets in this process's memory, with the same decisions as every other store.
//!
//! Its keys and so its memory are bounded, and it never pauses: locks are per shard, and each new key sweeps a few
//! slots. It must not know about plans, policies or the network. Its buckets can be saved and restored: as bytes
//! ([`MemoryStore::save`]), as a file ([`SnapshotFile`]), and periodically while it is used ([`AutoSave`]).

mod snapshot;
mod store;
mod table;

pub use snapshot::auto_save::AutoSave;
pub use snapshot::file::{FileError, SnapshotFile};
pub use snapshot::{RestoreError, Saved};
pub use store::{MemoryStore, MemoryStoreBuilder, Usage};
