//! What a bucket is found by: 128 bits of a keyed hash instead of the key itself.
//!
//! Keys of any length then cost the same, and a look-up touches one cache line instead of chasing a string.
//! Two keys share a bucket with a chance of one in 2^128; the seeds are drawn per process, so nobody can look
//! for such a pair.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use spile_core::Charge;

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
        static PLACE: OnceLock<SharedSeed> = OnceLock::new();
        static CHECK: OnceLock<SharedSeed> = OnceLock::new();
        let state = |shared: &'static OnceLock<SharedSeed>| {
            let shared = shared.get_or_init(|| SharedSeed::from_u64(random()));
            SeedableRandomState::with_seed(random(), shared)
        };
        Self { place: state(&PLACE), check: state(&CHECK) }
    }

    /// The fingerprint of the charge's bucket, and a hash of its key alone: a chain on one key then stays in
    /// one shard.
    pub(crate) fn of(&self, charge: &Charge<'_>) -> (Fingerprint, u64) {
        let key = charge.key().as_str().as_bytes();
        let limit = charge.limit().name().as_str().as_bytes();
        let (place, key_hash) = hash(&self.place, key, limit);
        let (check, _) = hash(&self.check, key, limit);
        // A fingerprint of all zeros would read as a free slot.
        (Fingerprint { place, check: check.max(1) }, key_hash)
    }
}

fn hash(state: &SeedableRandomState, key: &[u8], limit: &[u8]) -> (u64, u64) {
    let mut hasher = state.build_hasher();
    hasher.write(key);
    let key_hash = hasher.finish();
    // The length keeps (`ab`, `c`) apart from (`a`, `bc`).
    hasher.write_usize(key.len());
    hasher.write(limit);
    (hasher.finish(), key_hash)
}

/// Sixty-four bits from the operating system's generator, by way of the standard library.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
