//! Sixty-four bits that stand for a bucket in the tables of one limiter.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::SeedableRandomState;
use spile_core::Charge;
use spile_runtime::Runtime;

/// Stands for the bucket of a key under a limit. Never zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct BucketHash(u64);

/// Calculates the hashes. The seed is random, so that no caller can find two keys with the same hash.
#[derive(Debug)]
pub(crate) struct BucketHasher(SeedableRandomState);

impl BucketHasher {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        Self(runtime.hash_state())
    }

    pub(crate) fn hash(&self, charge: &Charge<'_>) -> BucketHash {
        let mut hasher = self.0.build_hasher();
        hasher.write(charge.key().as_str().as_bytes());
        hasher.write_u64(charge.limit().tag());
        BucketHash(hasher.finish().max(1))
    }
}

impl BucketHash {
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// One of `count` places.
    pub(crate) const fn place(self, count: usize) -> usize {
        self.0 as usize % count
    }

    /// Another one of `count` places, by other bits.
    pub(crate) const fn group(self, count: usize) -> usize {
        (self.0 >> 32) as usize % count
    }
}
