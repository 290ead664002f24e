//! What a bucket is found by: 128 bits of a keyed hash instead of the key itself.
//!
//! Keys of any length then cost the same, and a look-up touches one cache line instead of chasing a string.
//! Two keys share a bucket with a chance of one in 2^128; the seeds are drawn per process, so nobody can look
//! for such a pair.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use spile_core::{Key, NamedLimit};

/// The identity of one bucket in this process.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fingerprint {
    /// Decides where in the table the bucket lives.
    pub(crate) place: u64,
    pub(crate) check: u64,
}

impl Fingerprint {
    /// No bucket's fingerprint: marks a free slot.
    pub(crate) const NONE: Self = Self { place: 0, check: 0 };

    pub(crate) const fn is_none(self) -> bool {
        self.place == 0 && self.check == 0
    }
}

/// Draws fingerprints with seeds of its own.
#[derive(Clone, Debug)]
pub(crate) struct Fingerprinter {
    place: SeedableRandomState,
    check: SeedableRandomState,
}

impl Fingerprinter {
    pub(crate) fn new() -> Self {
        static SEEDS: [OnceLock<SharedSeed>; 2] = [const { OnceLock::new() }; 2];
        let [place, check] = &SEEDS;
        let state = |shared: &'static OnceLock<SharedSeed>| {
            let shared = shared.get_or_init(|| SharedSeed::from_u64(random()));
            SeedableRandomState::with_seed(random(), shared)
        };
        Self { place: state(place), check: state(check) }
    }

    /// The fingerprint of the bucket of a key under a limit, and a hash of the key alone: a chain on one key
    /// then stays in one shard.
    #[inline]
    pub(crate) fn of(&self, key: Key<'_>, limit: &NamedLimit) -> (Fingerprint, u64) {
        let key = key.as_str().as_bytes();
        let key_hash = hash(&self.place, key);
        let check = hash(&self.check, key) ^ limit.tag().rotate_left(32);
        // A fingerprint of all zeros would read as a free slot.
        (Fingerprint { place: key_hash ^ limit.tag(), check: check.max(1) }, key_hash)
    }
}

#[inline]
fn hash(state: &SeedableRandomState, bytes: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Sixty-four bits from the operating system's generator, by way of the standard library.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
