//! Names as 64-bit hashes with a seed of this process: what is counted and sketched by.

use std::hash::BuildHasher;

use foldhash::{fast, quality};
use spile_core::Key;

/// Turns names into fingerprints. Two of them agree on nothing, so that nobody outside can find a collision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprints {
    /// For keys, which callers choose and of which there is no end.
    keys: quality::RandomState,
    /// For tenants, which are few; hashed on each of their decisions.
    names: fast::RandomState,
}

impl Fingerprints {
    /// Of a tenant and what became of its request.
    pub(crate) fn tenant(&self, tenant: &str, code: u64) -> u64 {
        self.names.hash_one(tenant).wrapping_add(code)
    }

    /// Of whoever pays.
    pub(crate) fn key(&self, key: Key<'_>) -> u64 {
        self.keys.hash_one(key)
    }

    /// How a key is shown where names are not allowed: enough to tell keys apart, nothing to find them by.
    pub(crate) fn mask(fingerprint: u64) -> String {
        format!("#{:012x}", fingerprint >> 16)
    }
}
