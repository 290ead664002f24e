//! The hashes and the sets of permits of one call, and the numbers by which the script knows their buckets.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::script::msgpack;
use crate::script::request::WireCharge;

/// The distinct hashes that a call uses, and in each the distinct buckets, in order of first use.
#[derive(Default)]
pub(crate) struct CallHashes<'a> {
    hashes: Vec<CallHash<'a>>,
    /// The keys of sets of permits.
    permits: Vec<&'a [u8]>,
    seen: HashMap<&'a [u8], usize, foldhash::quality::RandomState>,
}

struct CallHash<'a> {
    key: &'a [u8],
    buckets: SmallVec<[HashBucket<'a>; 1]>,
    /// The number of its first bucket, counted from one as Lua counts.
    first: usize,
}

struct HashBucket<'a> {
    name: &'a [u8],
    /// The key to look at if the bucket is not in the hash.
    before: Option<&'a [u8]>,
}

/// Where the script finds a bucket.
#[derive(Clone, Copy)]
pub(crate) enum BucketPlace {
    /// Which hash, and which of its buckets.
    Hash { hash: usize, bucket: usize },
    /// Which set of permits.
    Permits(usize),
}

impl CallHash<'_> {
    /// Whether its one bucket has no name, so that the script need not be told of it.
    fn is_plain(&self) -> bool {
        matches!(&*self.buckets, [only] if only.name.is_empty())
    }
}

impl CallHash<'_> {
    fn has_names_of(&self, other: &Self) -> bool {
        self.buckets.len() == other.buckets.len()
            && self.buckets.iter().zip(&other.buckets).all(|(one, same)| one.name == same.name)
    }
}

impl<'a> CallHashes<'a> {
    /// Adds the bucket of a charge, unless it is there.
    pub(crate) fn add(&mut self, charge: &'a WireCharge) -> BucketPlace {
        let (key, name) = (charge.key.hash(), charge.key.name());
        if charge.limit.limit.is_concurrency() {
            let known = self.permits.iter().position(|known| *known == key);
            return BucketPlace::Permits(known.unwrap_or_else(|| {
                self.permits.push(key);
                self.permits.len() - 1
            }));
        }
        let hash = *self.seen.entry(key).or_insert(self.hashes.len());
        if hash == self.hashes.len() {
            self.hashes.push(CallHash { key, buckets: SmallVec::new(), first: 0 });
        }
        let buckets = &mut self.hashes[hash].buckets;
        // A hash has few buckets, so a linear search is faster than hashing.
        let bucket = buckets.iter().position(|known| known.name == name).unwrap_or(buckets.len());
        if bucket == buckets.len() {
            buckets.push(HashBucket { name, before: None });
        }
        if charge.carries_over {
            buckets[bucket].before = charge.key.before_sharing();
        }
        BucketPlace::Hash { hash, bucket }
    }

    /// Numbers the buckets in the order of the keys. Nothing may be added afterwards.
    pub(crate) fn number(&mut self) {
        let mut next = 1;
        for plain in [true, false] {
            for hash in self.hashes.iter_mut().filter(|hash| hash.is_plain() == plain) {
                hash.first = next;
                next += hash.buckets.len();
            }
        }
    }

    /// The number of a bucket. That of a set of permits is below zero: how many keys from the end its key is.
    pub(crate) fn bucket(&self, place: BucketPlace) -> Result<usize, f64> {
        match place {
            BucketPlace::Hash { hash, bucket } => Ok(self.hashes[hash].first + bucket),
            BucketPlace::Permits(set) => Err(set as f64 - self.permits.len() as f64),
        }
    }

    /// How many hashes hold one bucket without a name.
    pub(crate) fn plain(&self) -> usize {
        self.hashes.iter().filter(|hash| hash.is_plain()).count()
    }

    /// All keys: plain hashes, shared hashes, keys from before hashes were shared, and sets of permits.
    pub(crate) fn keys(&self) -> Vec<&'a [u8]> {
        let mut keys = Vec::with_capacity(self.hashes.len());
        keys.extend(self.hashes.iter().filter(|hash| hash.is_plain()).map(|hash| hash.key));
        keys.extend(self.shared().map(|hash| hash.key));
        keys.extend(self.shared().flat_map(|hash| &hash.buckets).filter_map(|bucket| bucket.before));
        keys.extend(&self.permits);
        keys
    }

    /// Appends the shapes of shared hashes and the hashes. Returns the number of entries.
    pub(crate) fn write_shared(&self, out: &mut Vec<u8>) -> usize {
        // A call has few shapes: those of the plans that have several limits.
        let mut shapes: Vec<&CallHash<'a>> = Vec::new();
        for hash in self.shared() {
            if !shapes.iter().any(|shape| shape.has_names_of(hash)) {
                shapes.push(hash);
            }
        }
        let mut entries = 2;
        msgpack::push_int(out, shapes.len() as u64);
        for shape in &shapes {
            msgpack::push_int(out, shape.buckets.len() as u64);
            for bucket in &shape.buckets {
                msgpack::push_name(out, bucket.name);
            }
            entries += 1 + shape.buckets.len();
        }
        let mut before = self.hashes.len();
        msgpack::push_int(out, self.shared().count() as u64);
        for hash in self.shared() {
            let shape = shapes.iter().position(|shape| shape.has_names_of(hash)).unwrap_or_default();
            let carries_over = hash.buckets.iter().any(|bucket| bucket.before.is_some());
            msgpack::push_int(out, 1 + shape as u64);
            msgpack::push_int(out, carries_over.into());
            entries += 2;
            for bucket in hash.buckets.iter().filter(|_| carries_over) {
                before += usize::from(bucket.before.is_some());
                msgpack::push_int(out, bucket.before.map_or(0, |_| before as u64));
                entries += 1;
            }
        }
        entries
    }

    fn shared(&self) -> impl Iterator<Item = &CallHash<'a>> {
        self.hashes.iter().filter(|hash| !hash.is_plain())
    }
}
