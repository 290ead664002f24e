//! What a bucket is found by: 128 bits of a keyed hash instead of the key itself.
//!
//! Keys of any length then cost the same, and a look-up touches one cache line instead of chasing a string.
//! Two keys share a bucket with a chance of one in 2^128; the seeds are drawn per store, so nobody can look
//! for such a pair. A store that was restored goes on with the seeds that its buckets were saved with.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use parking_lot::Mutex;
use spile_core::{Key, NamedLimit};

/// The bits of a place that come from the key alone.
const SHARD_BITS: u64 = 0x3F;
/// The most shards that can be told apart.
pub(crate) const MAX_SHARDS: usize = SHARD_BITS as usize + 1;

/// The identity of one bucket in one store.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fingerprint {
    /// Decides where in the table the bucket lives; its lowest bits, in which shard.
    pub(crate) place: u64,
    pub(crate) check: u64,
}

impl Fingerprint {
    /// No bucket's fingerprint: marks a free slot.
    pub(crate) const NONE: Self = Self { place: 0, check: 0 };

    pub(crate) const fn is_none(self) -> bool {
        self.place == 0 && self.check == 0
    }

    /// Which of so many shards, a power of two, holds the bucket. All limits of a key share one.
    pub(crate) const fn shard(self, shards: usize) -> usize {
        self.place as usize & (shards - 1)
    }
}

/// What fingerprints are drawn with: of each hash, what hashers of this process share and what is its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Seeds(pub(crate) [u64; 4]);

impl Seeds {
    fn random() -> Self {
        static SHARED: LazyLock<[u64; 2]> = LazyLock::new(|| [random(), random()]);
        let [place, check] = *SHARED;
        Self([place, random(), check, random()])
    }
}

/// Draws fingerprints with seeds of its own.
#[derive(Clone, Debug)]
pub(crate) struct Fingerprinter {
    seeds: Seeds,
    place: SeedableRandomState,
    check: SeedableRandomState,
}

impl Fingerprinter {
    pub(crate) fn new() -> Self {
        Self::seeded(Seeds::random())
    }

    pub(crate) fn seeded(seeds: Seeds) -> Self {
        let Seeds([place_shared, place, check_shared, check]) = seeds;
        let state = |shared, own| SeedableRandomState::with_seed(own, lasting(shared));
        Self { seeds, place: state(place_shared, place), check: state(check_shared, check) }
    }

    pub(crate) const fn seeds(&self) -> Seeds {
        self.seeds
    }

    /// The fingerprint of the bucket of a key under a limit.
    #[inline]
    pub(crate) fn of(&self, key: Key<'_>, limit: &NamedLimit) -> Fingerprint {
        let key = key.as_str().as_bytes();
        let place = hash(&self.place, key) ^ (limit.tag() & !SHARD_BITS);
        let check = hash(&self.check, key) ^ limit.tag().rotate_left(32);
        // A fingerprint of all zeros would read as a free slot.
        Fingerprint { place, check: check.max(1) }
    }
}

#[inline]
fn hash(state: &SeedableRandomState, bytes: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The hasher asks for a seed that lives for ever. Each is made once; a process sees one, and two more for each file
/// that it restores.
fn lasting(seed: u64) -> &'static SharedSeed {
    static MADE: Mutex<Vec<(u64, &'static SharedSeed)>> = Mutex::new(Vec::new());
    let mut made = MADE.lock();
    if let Some((_, shared)) = made.iter().find(|(known, _)| *known == seed) {
        return shared;
    }
    let shared: &'static SharedSeed = Box::leak(Box::new(SharedSeed::from_u64(seed)));
    made.push((seed, shared));
    shared
}

/// Sixty-four bits from the operating system's generator, by way of the standard library.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
