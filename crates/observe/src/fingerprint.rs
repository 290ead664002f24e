//! Names as 64-bit hashes with a seed of this process: what is counted and sketched by.

use std::hash::{BuildHasher, Hasher};

use foldhash::{fast, quality};
use spile_core::Key;

/// Turns names into fingerprints. Two of them agree on nothing, so that nobody outside can find a collision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprints {
    /// For keys, which callers choose and of which there is no end.
    keys: quality::RandomState,
    /// For rules and tenants, which are few; hashed on every decision.
    names: fast::RandomState,
}

impl Fingerprints {
    /// Of a rule, a limit's tag and what became of the request. Never zero, which means "free".
    #[inline]
    pub(crate) fn series(&self, rule: Option<&str>, limit_tag: u64, code: u64) -> u64 {
        let rule = rule.map_or(0, |rule| self.name(rule));
        nonzero(spread(limit_tag ^ rule.rotate_left(21) ^ code))
    }

    /// Of a tenant and what became of its request.
    #[inline]
    pub(crate) fn tenant(&self, tenant: &str, code: u64) -> u64 {
        nonzero(spread(!self.name(tenant) ^ code))
    }

    /// Without the mark that `str` puts behind itself: it costs as much as a short name.
    #[inline]
    fn name(&self, name: &str) -> u64 {
        let mut hasher = self.names.build_hasher();
        hasher.write(name.as_bytes());
        hasher.finish()
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

/// An odd multiplication moves a difference in the low bits, where the code stands, into the high bits, by which
/// cells are found.
const fn spread(mixed: u64) -> u64 {
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

const fn nonzero(fingerprint: u64) -> u64 {
    if fingerprint == 0 { 1 } else { fingerprint }
}
