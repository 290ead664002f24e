//! A shard: a table of buckets behind its own lock.

use parking_lot::{Mutex, MutexGuard};
use spile_core::{Bucket, Limit, Micros};

use crate::table::BucketTable;
use crate::table::entry::BucketEntry;
use crate::table::fingerprint::Fingerprint;

/// A locked table on its own cache lines, so that shards do not slow each other down by false sharing.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard(Mutex<ShardState>);

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct ShardState {
    table: BucketTable,
    /// The most buckets of this shard: its part of the store's bound.
    most: usize,
    /// How many slots each new key sweeps.
    sweep: usize,
    /// Buckets that were evicted before they were full again.
    evicted: u64,
}

impl Shard {
    pub(crate) const fn new(most: usize, sweep: usize) -> Self {
        Self(Mutex::new(ShardState { table: BucketTable::new(), most, sweep, evicted: 0 }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.0.lock()
    }
}

impl ShardState {
    pub(crate) fn bucket(&self, fingerprint: Fingerprint) -> Option<Bucket> {
        self.table.get(fingerprint).map(BucketEntry::bucket)
    }

    pub(crate) fn entry(&mut self, fingerprint: Fingerprint) -> Option<&mut BucketEntry> {
        self.table.get_mut(fingerprint)
    }

    pub(crate) fn write(&mut self, fingerprint: Fingerprint, bucket: Bucket, limit: &Limit, now: Micros) {
        match self.table.get_mut(fingerprint) {
            Some(entry) => entry.write(bucket, limit),
            None => self.insert(BucketEntry::new(fingerprint, bucket, limit), now),
        }
    }

    pub(crate) fn denied(&mut self, fingerprint: Fingerprint, limit: &Limit) {
        if let Some(entry) = self.table.get_mut(fingerprint) {
            entry.denied_by(limit);
        }
    }

    /// Adds a bucket. Sweeps a few slots, and evicts others if the shard is full.
    pub(crate) fn insert(&mut self, entry: BucketEntry, now: Micros) {
        self.table.sweep(self.sweep, now);
        while self.table.len() >= self.most {
            match self.table.evict(now) {
                Some(level) if level < 1.0 => self.evicted += 1,
                Some(_) => {}
                None => break,
            }
        }
        self.table.insert(entry);
    }

    /// Adds saved buckets, and evicts others if the shard is full.
    pub(crate) fn restore(&mut self, entries: &[BucketEntry], now: Micros) {
        self.table.reserve(entries.len().min(self.most.saturating_sub(self.table.len())));
        for entry in entries {
            if self.table.len() < self.most { self.table.insert(*entry) } else { self.insert(*entry, now) }
        }
    }

    pub(crate) fn forget(&mut self, fingerprint: Fingerprint) {
        self.table.remove(fingerprint);
    }

    /// Appends a copy of every slot to `to`, free ones too: the fastest way, since the lock is held meanwhile.
    pub(crate) fn copy_to(&self, to: &mut Vec<BucketEntry>) {
        to.extend_from_slice(self.table.slots());
    }

    /// How many slots [`copy_to`](Self::copy_to) copies.
    pub(crate) const fn slots(&self) -> usize {
        self.table.slots().len()
    }

    pub(crate) const fn keys(&self) -> usize {
        self.table.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.table.bytes()
    }

    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }
}
