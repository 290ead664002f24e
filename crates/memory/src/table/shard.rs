//! A shard: a table of buckets behind its own lock.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use spile_core::{Amount, Bucket, HeldPermit, Limit, Micros, PermitId};

use crate::store::Usage;
use crate::table::BucketTable;
use crate::table::entry::BucketEntry;
use crate::table::fingerprint::Fingerprint;
use crate::table::now::Now;
use crate::table::permit_room::PermitRoom;
use crate::table::permits::PermitTable;

/// A locked table on its own cache lines, so that shards do not slow each other down by false sharing.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard(Mutex<ShardState>);

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) table: BucketTable,
    /// The most buckets of this shard: its share of the store's bound.
    most: usize,
    /// The number of slots that each new key sweeps.
    sweep: usize,
    /// Buckets that were evicted before they were full again.
    evicted: u64,
    pub(crate) permits: PermitTable,
}

impl Shard {
    /// A shard of a store with this room for permits.
    pub(crate) const fn new(most: usize, sweep: usize, room: Arc<PermitRoom>) -> Self {
        Self(Mutex::new(ShardState {
            table: BucketTable::new(),
            most,
            sweep,
            evicted: 0,
            permits: PermitTable::new(room),
        }))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.0.lock()
    }
}

impl ShardState {
    pub(crate) fn entry(&mut self, fingerprint: Fingerprint) -> Option<&mut BucketEntry> {
        self.table.get_mut(fingerprint)
    }

    /// Writes a bucket if it was changed. If not, records the limit of the question.
    pub(crate) fn write(
        &mut self,
        fingerprint: Fingerprint,
        changed: Option<Bucket>,
        limit: &Limit,
        now: Now,
    ) {
        match (self.table.get_mut(fingerprint), changed) {
            (Some(entry), Some(bucket)) => entry.write(bucket, limit, now),
            (Some(entry), None) => entry.asked_under(limit, now),
            (None, Some(bucket)) => self.insert(BucketEntry::new(fingerprint, bucket, limit, now), now),
            (None, None) => {}
        }
    }

    /// Adds a bucket. Sweeps a few slots, and evicts others if the shard is full.
    pub(crate) fn insert(&mut self, entry: BucketEntry, now: Now) {
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
    pub(crate) fn restore(&mut self, entries: &[BucketEntry], now: Now) {
        self.table.reserve(entries.len().min(self.most.saturating_sub(self.table.len())));
        for entry in entries {
            if self.table.len() < self.most { self.table.insert(*entry) } else { self.insert(*entry, now) }
        }
    }

    /// Removes a bucket, and releases all its permits.
    pub(crate) fn forget(&mut self, fingerprint: Fingerprint) {
        self.table.remove(fingerprint);
        self.permits.free(fingerprint);
    }

    /// The free places of a concurrency.
    pub(crate) fn places(&self, fingerprint: Fingerprint, limit: &Limit, now: Now) -> Bucket {
        Bucket::places(limit, self.permits.count(fingerprint, now.steady), now.wall())
    }

    /// The places available to this permit, including its own if it is held. Zero if the store has no room for another permit; the
    /// store sweeps all shards before it asks.
    pub(crate) fn places_for(
        &mut self,
        id: &PermitId,
        fingerprint: Fingerprint,
        limit: &Limit,
        now: Now,
    ) -> Amount {
        self.permits.end_expired(fingerprint, now.steady);
        self.permits.sweep(self.sweep, now.steady);
        let is_held = self.permits.is_held(fingerprint, id, now.steady);
        if !is_held && self.permits.is_full() {
            return Amount::ZERO;
        }
        let places = self.places(fingerprint, limit, now).amount();
        if places == Amount::ZERO {
            self.permits.end_within(fingerprint, limit.fill_time(), now.steady);
        }
        places + if is_held { Amount::TOKEN } else { Amount::ZERO }
    }

    pub(crate) fn holders(&self, fingerprint: Fingerprint, now: Now) -> Vec<HeldPermit> {
        let held = self.permits.holders(fingerprint, now.steady);
        held.into_iter().map(|permit| HeldPermit { until: now.to_wall(permit.until), ..permit }).collect()
    }

    pub(crate) fn usage(&mut self, now: Micros) -> Usage {
        self.permits.sweep(usize::MAX, now);
        Usage {
            keys: self.table.len(),
            bytes: self.table.bytes(),
            evicted: self.evicted,
            permits: self.permits.len,
            expired_permits: self.permits.expired,
        }
    }
}
