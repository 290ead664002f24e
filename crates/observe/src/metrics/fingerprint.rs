//! Keys and tenants as 64-bit hashes with a random seed of this process.

use std::hash::BuildHasher;

use foldhash::{fast, quality};
use spile_core::Key;

/// Hashes keys and tenants. Each instance has its own seed, so that callers cannot construct collisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprints {
    /// For keys, which callers choose and whose number is unlimited.
    keys: quality::RandomState,
    /// For tenants, which are few. They are hashed for each of their decisions, so this hash must be fast.
    names: fast::RandomState,
}

impl Fingerprints {
    /// The fingerprint of a tenant and a code, such as the outcome of its request.
    pub(crate) fn tenant(&self, tenant: &str, code: u64) -> u64 {
        self.names.hash_one(tenant).wrapping_add(code)
    }

    /// The fingerprint of a key.
    pub(crate) fn key(&self, key: Key<'_>) -> u64 {
        self.keys.hash_one(key)
    }

    /// The text that is shown instead of a key: enough to distinguish keys, but the key cannot be found from it.
    pub(crate) fn mask(fingerprint: u64) -> String {
        format!("#{:012x}", fingerprint >> 16)
    }
}
