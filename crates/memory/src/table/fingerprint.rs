//! The identity of a bucket: 128 bits of a keyed hash instead of the key itself.
//!
//! Keys of any length then cost the same, and a lookup touches one cache line and no string. Two keys collide with a
//! probability of 2^-126. The seeds are random per store, so an attacker cannot search for a collision. A restored
//! store uses the seeds of its snapshot.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use parking_lot::Mutex;
use spile_core::{Key, NamedLimit, Shape};

/// The bits of `place` that depend on the key only.
const SHARD_BITS: u64 = 0x3F;
/// The most shards.
pub(crate) const MAX_SHARDS: usize = SHARD_BITS as usize + 1;

/// The identity of one bucket in one store.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fingerprint {
    /// The position in the table. Its lowest bits choose the shard.
    pub(crate) place: u64,
    /// The lowest bits are the code of the limit's shape.
    pub(crate) check: u64,
}

impl Fingerprint {
    /// The fingerprint of a free slot. No bucket has it.
    pub(crate) const NONE: Self = Self { place: 0, check: 0 };

    pub(crate) const fn is_none(self) -> bool {
        self.place == 0 && self.check == 0
    }

    /// True if it is of the bucket of a quota.
    pub(crate) const fn is_of_quota(self) -> bool {
        self.check & NamedLimit::SHAPE_BITS == Shape::QUOTA
    }

    /// True if it is of a bucket, which is that of a rate or a quota.
    pub(crate) const fn is_of_bucket(self) -> bool {
        self.is_of_quota() || self.check & NamedLimit::SHAPE_BITS == Shape::RATE
    }

    /// The index of the shard. `shards` must be a power of two. All limits of a key are in one shard.
    pub(crate) const fn shard(self, shards: usize) -> usize {
        self.place as usize & (shards - 1)
    }
}

/// The seeds of both hashes: for each hash one that all stores of the process share, and one of this store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Seeds(pub(crate) [u64; 4]);

impl Seeds {
    fn random() -> Self {
        static SHARED: LazyLock<[u64; 2]> = LazyLock::new(|| [random(), random()]);
        let [place, check] = *SHARED;
        Self([place, random(), check, random()])
    }
}

/// Computes fingerprints.
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
    #[expect(clippy::inline_always, reason = "a call would take as long as the hash of a short key")]
    #[inline(always)]
    pub(crate) fn of(&self, key: Key<'_>, limit: &NamedLimit) -> Fingerprint {
        let key = key.as_str().as_bytes();
        let place = hash(&self.place, key) ^ (limit.tag() & !SHARD_BITS);
        let check = hash(&self.check, key) ^ limit.tag().rotate_left(32);
        // The code of a shape is not zero, so that no bucket has the fingerprint of a free slot.
        let shape = limit.tag() & NamedLimit::SHAPE_BITS;
        Fingerprint { place, check: check & !NamedLimit::SHAPE_BITS | shape }
    }
}

#[inline]
fn hash(state: &SeedableRandomState, bytes: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The hasher needs a `'static` seed, so each is leaked once: two per process, and two more for each snapshot that it
/// restores.
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

/// Random bits from the operating system, by way of the standard library.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
