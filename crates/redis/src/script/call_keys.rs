//! The keys of one call, and the numbers by which the script knows their buckets.

use std::collections::HashMap;

use smallvec::SmallVec;
use spile_core::Shape;

use crate::script::key::BucketKey;
use crate::script::msgpack;
use crate::script::request::WireCharge;

/// The distinct hashes and sets of permits of a call. Hashes with the same fields form one list.
#[derive(Default)]
pub(crate) struct CallKeys<'a> {
    hashes: SmallVec<[CallHash<'a>; 1]>,
    sets: Vec<&'a [u8]>,
    /// The first hash of each list. A call has few lists: one per plan.
    lists: SmallVec<[usize; 1]>,
    seen: HashMap<&'a [u8], usize, foldhash::quality::RandomState>,
}

struct CallHash<'a> {
    key: &'a [u8],
    buckets: SmallVec<[HashBucket<'a>; 1]>,
    /// True for the marker of a reservation that is settled, whose amounts are behind its bucket.
    is_settled: bool,
    list: usize,
    /// The number of its first bucket, counted from one as Lua counts.
    first: usize,
}

#[derive(Eq, PartialEq)]
struct HashBucket<'a> {
    /// Empty for the only limit of a plan.
    name: &'a [u8],
    fields: [&'static str; 2],
}

/// Where the script finds the state of a charge.
#[derive(Clone, Copy)]
pub(crate) enum StatePlace {
    Hash { hash: usize, bucket: usize },
    Set(usize),
}

impl<'a> CallKeys<'a> {
    /// Adds the bucket of a charge, unless it is there.
    pub(crate) fn add(&mut self, charge: &'a WireCharge) -> StatePlace {
        match charge.limit.limit.shape() {
            Shape::Rate(_) => self.add_bucket(&charge.key, ["t", "ts"]),
            Shape::Quota(_) => self.add_bucket(&charge.key, ["u", "ue"]),
            Shape::Concurrency(_) => {
                let key = charge.key.hash();
                let known = self.sets.iter().position(|known| *known == key);
                StatePlace::Set(known.unwrap_or_else(|| {
                    self.sets.push(key);
                    self.sets.len() - 1
                }))
            }
        }
    }

    /// Adds a marker, which has the form of a quota's bucket, unless it is there.
    pub(crate) fn add_marker(&mut self, key: &'a BucketKey, is_settled: bool) -> StatePlace {
        let place = self.add_bucket(key, ["u", "ue"]);
        if let StatePlace::Hash { hash, .. } = place {
            self.hashes[hash].is_settled |= is_settled;
        }
        place
    }

    fn add_bucket(&mut self, bucket: &'a BucketKey, fields: [&'static str; 2]) -> StatePlace {
        let key = bucket.hash();
        let hash = *self.seen.entry(key).or_insert(self.hashes.len());
        if hash == self.hashes.len() {
            self.hashes.push(CallHash {
                key,
                buckets: SmallVec::new(),
                is_settled: false,
                list: 0,
                first: 0,
            });
        }
        let buckets = &mut self.hashes[hash].buckets;
        let wanted = HashBucket { name: bucket.name(), fields };
        // A hash has few buckets, so a linear search is faster than hashing.
        let bucket = buckets.iter().position(|known| *known == wanted).unwrap_or(buckets.len());
        if bucket == buckets.len() {
            buckets.push(wanted);
        }
        StatePlace::Hash { hash, bucket }
    }

    /// Numbers the buckets in the order of the keys. Nothing may be added afterwards.
    pub(crate) fn number(&mut self) {
        for hash in 0..self.hashes.len() {
            let fields = |hash: usize| (&self.hashes[hash].buckets, self.hashes[hash].is_settled);
            let alike = |&list: &usize| fields(list) == fields(hash);
            let list = self.lists.iter().position(alike).unwrap_or(self.lists.len());
            if list == self.lists.len() {
                self.lists.push(hash);
            }
            self.hashes[hash].list = list;
        }
        let mut next = 1;
        for list in 0..self.lists.len() {
            for hash in self.hashes.iter_mut().filter(|hash| hash.list == list) {
                hash.first = next;
                next += hash.buckets.len();
            }
        }
    }

    /// The number of the bucket, or of the set of permits. Each counts from one.
    pub(crate) fn index(&self, place: StatePlace) -> u64 {
        let index = match place {
            StatePlace::Hash { hash, bucket } => self.hashes[hash].first + bucket,
            StatePlace::Set(set) => set + 1,
        };
        index as u64
    }

    /// All keys: the hashes of each list, then the sets of permits.
    pub(crate) fn keys(&self) -> Vec<&'a [u8]> {
        let mut keys = Vec::with_capacity(self.hashes.len() + self.sets.len());
        for list in 0..self.lists.len() {
            keys.extend(self.hashes.iter().filter(|hash| hash.list == list).map(|hash| hash.key));
        }
        keys.extend(&self.sets);
        keys
    }

    /// Appends the number of lists, and per list its fields and the number of its hashes. Returns the number of entries.
    pub(crate) fn write_lists(&self, out: &mut Vec<u8>) -> usize {
        let mut entries = 1;
        msgpack::push_int(out, self.lists.len() as u64);
        for (list, &first) in self.lists.iter().enumerate() {
            let CallHash { buckets, is_settled, .. } = &self.hashes[first];
            let fields = 2 * buckets.len() + usize::from(*is_settled);
            msgpack::push_int(out, fields as u64);
            for bucket in buckets {
                for field in bucket.fields {
                    let colon: &[u8] = if bucket.name.is_empty() { b"" } else { b":" };
                    msgpack::push_text(out, &[bucket.name, colon, field.as_bytes()]);
                }
            }
            if *is_settled {
                msgpack::push_text(out, &[b"a"]);
            }
            let hashes = self.hashes.iter().filter(|hash| hash.list == list);
            msgpack::push_int(out, hashes.count() as u64);
            entries += 2 + fields;
        }
        entries
    }
}
