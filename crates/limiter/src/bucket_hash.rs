//! Sixty-four bits that stand for a bucket in the tables of one limiter.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use spile_core::Charge;

/// Stands for the bucket of a key under a limit. Never zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct BucketHash(u64);

/// Calculates the hashes. The seed differs in each process, so that no caller can find two keys with the same one.
#[derive(Debug, Default)]
pub(crate) struct BucketHasher(RandomState);

impl BucketHasher {
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
