//! One lock's worth of buckets.

use parking_lot::{Mutex, MutexGuard};
use spile_core::{Bucket, Limit, Micros};

use crate::entry::Entry;
use crate::fingerprint::Fingerprint;
use crate::table::Table;

/// A table behind a lock, on cache lines of its own: neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard(Mutex<Held>);

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Held {
    table: Table,
    /// This shard's part of the store's bound.
    most: usize,
    /// Slots that each new key tidies.
    sweep: usize,
    /// Buckets forgotten before they were full again.
    evicted: u64,
}

impl Shard {
    pub(crate) const fn new(most: usize, sweep: usize) -> Self {
        Self(Mutex::new(Held { table: Table::new(), most, sweep, evicted: 0 }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock()
    }
}

impl Held {
    pub(crate) fn bucket(&self, fingerprint: Fingerprint) -> Option<Bucket> {
        self.table.get(fingerprint).map(Entry::bucket)
    }

    pub(crate) fn entry(&mut self, fingerprint: Fingerprint) -> Option<&mut Entry> {
        self.table.get_mut(fingerprint)
    }

    pub(crate) fn write(&mut self, fingerprint: Fingerprint, bucket: Bucket, limit: &Limit, now: Micros) {
        match self.table.get_mut(fingerprint) {
            Some(entry) => entry.write(bucket, limit),
            None => self.insert(Entry::new(fingerprint, bucket, limit), now),
        }
    }

    pub(crate) fn denied(&mut self, fingerprint: Fingerprint, limit: &Limit) {
        if let Some(entry) = self.table.get_mut(fingerprint) {
            entry.denied_by(limit);
        }
    }

    /// Adds a bucket, tidies a few others, and makes room where there is none.
    pub(crate) fn insert(&mut self, entry: Entry, now: Micros) {
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

    /// Adds buckets that were saved; makes room where there is too little.
    pub(crate) fn restore(&mut self, entries: &[Entry], now: Micros) {
        self.table.reserve(entries.len().min(self.most.saturating_sub(self.table.len())));
        for entry in entries {
            if self.table.len() < self.most { self.table.insert(*entry) } else { self.insert(*entry, now) }
        }
    }

    pub(crate) fn forget(&mut self, fingerprint: Fingerprint) {
        self.table.remove(fingerprint);
    }

    /// Copies every slot, free ones too, to the end of `to`: the shortest that the lock can be held for.
    pub(crate) fn copy_to(&self, to: &mut Vec<Entry>) {
        to.extend_from_slice(self.table.slots());
    }

    /// How many [`copy_to`](Self::copy_to) copies.
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
