//! The store: finds the shards of a chain, locks them in one order, and runs the operation.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use spile_core::{
    Amount, Answer, Bucket, BucketSlot, ChainPermits, Charge, Charges, Clock, Cost, EmbeddedStore,
    HeldPermit, Inspect, Kept, Key, Limit, Micros, NamedLimit, Operation, PermitId, PermitStep, Reply, Spent,
    Store, StoreError, SystemClock, decide, permit,
};

use crate::table::entry::BucketEntry;
use crate::table::fingerprint::{Fingerprint, Fingerprinter, MAX_SHARDS, Seeds};
use crate::table::now::Now;
use crate::table::permit_room::PermitRoom;
use crate::table::shard::{Shard, ShardState};

/// Buckets in this process's memory.
///
/// ```
/// # use spile_memory as spile;
/// use spile::MemoryStore;
///
/// let store = MemoryStore::builder().max_keys(100_000).build();
/// assert_eq!(store.usage().keys, 0);
/// ```
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    pub(crate) clock: C,
    pub(crate) fingerprinter: Fingerprinter,
    pub(crate) shards: Box<[Shard]>,
    permit_room: Arc<PermitRoom>,
}

/// Counts of the state and the evictions of a store. Can be summed over stores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Buckets held.
    pub keys: usize,
    /// Bytes that the tables take.
    pub bytes: usize,
    /// Buckets that were evicted at the bound before they were full: each returned some tokens to its key too early.
    pub evicted: u64,
    /// Permits held.
    pub permits: usize,
    /// Permits that ended because they were neither renewed nor released in time.
    pub expired_permits: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.evicted += other.evicted;
        self.permits += other.permits;
        self.expired_permits += other.expired_permits;
        self
    }
}

/// Settings of a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use = "call build()"]
pub struct MemoryStoreBuilder<C = SystemClock> {
    clock: C,
    max_keys: usize,
    sweep: usize,
}

impl MemoryStore {
    /// A store of up to a million buckets on the machine's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder with the default settings.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { clock: SystemClock::new(), max_keys: 1_000_000, sweep: 4 }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> MemoryStoreBuilder<C> {
    /// Reads the time from `clock`.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { clock, max_keys: self.max_keys, sweep: self.sweep }
    }

    /// Holds at most this many buckets (at least one), and as many permits: beyond that, permits are denied. A bucket takes 53 to
    /// 80 bytes.
    ///
    /// At the bound each new key evicts another one: the fullest of a sample, or the one of median age if the whole
    /// sample is nearly empty. So a flood of keys, empty or not, evicts keys of the flood. Empty buckets from before
    /// the flood stay as long as they fill less than half of the store. Keys that arrive during the flood stay until
    /// half as many others as the bound have followed. Choose a bound for all keys that are in use within the time that
    /// their buckets take to fill. At the bound a bucket that is half full or more may be evicted at any time, which
    /// gives its key at most half a burst.
    pub const fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// The number of slots that each new key sweeps for full buckets. With zero, full buckets stay until the bound is reached.
    pub const fn sweep(mut self, slots: usize) -> Self {
        self.sweep = slots;
        self
    }

    /// Builds an empty store. It allocates memory as keys arrive.
    pub fn build(self) -> MemoryStore<C> {
        self.build_with(Fingerprinter::new())
    }

    /// Builds an empty store whose hashes depend on this seed alone, so that equal calls evict equal buckets. For simulations: with a
    /// known seed, clients could choose keys that collide.
    pub fn build_seeded(self, seed: u64) -> MemoryStore<C> {
        self.build_with(Fingerprinter::seeded(Seeds([1, seed, 2, seed.rotate_left(32)])))
    }

    pub(crate) fn build_with(self, fingerprinter: Fingerprinter) -> MemoryStore<C> {
        let max_keys = self.max_keys.max(1);
        // A small store has one shard, so that its bound is exact.
        let shards = (max_keys / 4_096).next_power_of_two().min(MAX_SHARDS);
        let part = |index: usize| max_keys / shards + usize::from(index < max_keys % shards);
        let permit_room = Arc::new(PermitRoom::new(max_keys));
        let shard = |index| Shard::new(part(index), self.sweep, Arc::clone(&permit_room));
        let shards = (0..shards).map(shard).collect();
        MemoryStore { clock: self.clock, fingerprinter, shards, permit_room }
    }
}

impl<C: Clock> MemoryStore<C> {
    /// The current usage. Locks one shard at a time.
    pub fn usage(&self) -> Usage {
        let now = self.clock.now();
        self.shards.iter().fold(Usage::default(), |sum, shard| sum + shard.lock().usage(now))
    }

    /// Runs one operation. Waits for nothing but locks.
    #[inline]
    pub fn run(&self, operation: Operation<'_>, charges: &Charges<'_>) -> Reply {
        if matches!(operation, Operation::Spend)
            && let [charge] = &**charges
            && !charge.needs_permit()
        {
            return self.spend_one(charge.key(), charge.limit(), charge.cost()).into();
        }
        self.run_chain(operation, charges)
    }

    #[inline(never)]
    fn run_chain(&self, operation: Operation<'_>, charges: &Charges<'_>) -> Reply {
        let charges = &*operation.with_markers(charges);
        if let Operation::Permit(_, PermitStep::Acquire | PermitStep::Retake) = operation {
            self.make_room_for_permits();
        }
        let mut chain = LockedChain::new(self, charges);
        let (mut slots, now) = (chain.read(charges), chain.now.wall());
        let reply = match operation {
            Operation::Permit(id, step) => permit(charges, id, step, &mut slots, &mut chain, now),
            _ => decide(&operation, charges, &mut slots, now),
        };
        if !matches!(operation, Operation::Peek) {
            chain.write_back(charges, &slots);
        }
        reply
    }

    /// Spends a single charge, without the overhead of a chain. A cost above the capacity is always denied. The limit must not be a
    /// concurrency.
    #[expect(
        clippy::inline_always,
        reason = "its answer is then never written to memory and read again, which stalls"
    )]
    #[inline(always)]
    pub fn spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Spent {
        let fingerprint = self.fingerprinter.of(key, limit);
        let limit = limit.limit();
        // Read before the lock, so that reading the clock overlaps with the lookup.
        let mut time = Now::of(&self.clock);
        let mut now = time.by_clock_of(limit);
        let mut held = self.shards[self.shard(fingerprint)].lock();
        let entry = held.entry(fingerprint);
        let current = match entry.as_ref().map(|entry| entry.bucket()) {
            Some(bucket) if bucket.moment() > now => {
                // If the thread was suspended before the lock, another one may have written a rate later than `now`.
                if limit.rate().is_some() {
                    time = Now::of(&self.clock);
                    now = time.by_clock_of(limit);
                }
                bucket.rebased(limit, now)
            }
            Some(bucket) => bucket,
            None => Bucket::full(limit, now),
        };
        let spent = current.spend(limit, cost, now);
        let (allowed, spends) = (spent.is_some(), spent.is_some() && cost > Cost::ZERO);
        let bucket = spent.filter(|_| spends).unwrap_or(current);
        match entry {
            Some(entry) if spends || current != entry.bucket() => entry.write(bucket, limit, time),
            Some(entry) => entry.asked_under(limit, time),
            None if spends => held.insert(BucketEntry::new(fingerprint, bucket, limit, time), time),
            None => {}
        }
        Spent { allowed, at: time.wall(), bucket: time.bucket_to_wall(bucket, limit) }
    }

    /// Removes expired permits of all shards if the store is full of permits. Locks one shard at a time, so the caller must not
    /// hold a lock.
    fn make_room_for_permits(&self) {
        if self.permit_room.is_full() {
            let now = self.clock.now();
            if self.permit_room.is_sweep_due(now) {
                self.shards.iter().for_each(|shard| shard.lock().permits.sweep(usize::MAX, now));
            }
        }
    }

    fn find(&self, charge: &Charge<'_>) -> (Fingerprint, usize) {
        let fingerprint = self.fingerprinter.of(charge.key(), charge.limit());
        (fingerprint, self.shard(fingerprint))
    }

    pub(crate) const fn shard(&self, fingerprint: Fingerprint) -> usize {
        fingerprint.shard(self.shards.len())
    }
}

/// Access for snapshots.
impl<C: Clock> MemoryStore<C> {
    /// Adds saved buckets. Sorts them by shard, so that each shard is locked once.
    pub(crate) fn put_back(&self, entries: &mut [BucketEntry], now: Now) {
        entries.sort_unstable_by_key(|entry| self.shard(entry.fingerprint()));
        for entries in entries.chunk_by(|a, b| self.shard(a.fingerprint()) == self.shard(b.fingerprint())) {
            let shard = self.shard(entries[0].fingerprint());
            self.shards[shard].lock().restore(entries, now);
        }
    }
}

impl<C: Clock> EmbeddedStore for MemoryStore<C> {}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline]
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::<std::future::Ready<_>>::Now(Ok(self.run(operation, charges)))
    }

    fn is_shared(&self) -> bool {
        false
    }

    #[expect(clippy::inline_always, reason = "as the method of the same name")]
    #[inline(always)]
    fn spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        Some(Self::spend_one(self, key, limit, cost))
    }
}

impl<C: Clock> Inspect for MemoryStore<C> {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        let now = Now::of(&self.clock);
        let held = |charge: &Charge<'_>| {
            let (fingerprint, shard) = self.find(charge);
            self.shards[shard].lock().holders(fingerprint, now)
        };
        Ok(charges.iter().map(held).collect())
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        let kept = |charge: &Charge<'_>| {
            let (fingerprint, shard) = self.find(charge);
            let is_kept = self.shards[shard].lock().entry(fingerprint).is_some();
            if is_kept { Kept::UntilFull } else { Kept::Absent }
        };
        Ok(charges.iter().map(kept).collect())
    }
}

/// The locked shards of a chain, and the places of its buckets in them.
// Aligned to a cache line: otherwise its speed depends on the depth of the caller's stack.
#[repr(align(64))]
struct LockedChain<'a> {
    /// Sorted by shard without duplicates, so that two chains cannot deadlock.
    locked: SmallVec<[(usize, MutexGuard<'a, ShardState>); 4]>,
    places: SmallVec<[(Fingerprint, usize); 4]>,
    now: Now,
}

impl<'a> LockedChain<'a> {
    fn new<C: Clock>(store: &'a MemoryStore<C>, charges: &Charges<'_>) -> Self {
        let places: SmallVec<[_; 4]> = charges.iter().map(|charge| store.find(charge)).collect();
        let mut shards: SmallVec<[usize; 4]> = places.iter().map(|&(_, shard)| shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.into_iter().map(|shard| (shard, store.shards[shard].lock())).collect();
        // Read behind the locks, so that no bucket was written later.
        Self { locked, places, now: Now::of(&store.clock) }
    }

    /// The bucket of each charge; for a concurrency its free places.
    fn read(&mut self, charges: &Charges<'_>) -> SmallVec<[BucketSlot; 4]> {
        let now = self.now;
        let read = |(index, charge): (usize, &Charge<'_>)| {
            let (limit, (fingerprint, held)) = (charge.limit().limit(), self.held(index));
            BucketSlot::read(if charge.needs_permit() {
                Some(held.places(fingerprint, limit, now))
            } else {
                held.entry(fingerprint).map(|entry| now.bucket_to_wall(entry.bucket(), limit))
            })
        };
        charges.iter().enumerate().map(read).collect()
    }

    /// Writes the changed buckets, and removes those that were reset, with all permits. For an unchanged bucket the limit is recorded,
    /// because it may refill more slowly than the limits before it.
    fn write_back(&mut self, charges: &Charges<'_>, slots: &[BucketSlot]) {
        let now = self.now;
        for (index, (charge, slot)) in charges.iter().zip(slots).enumerate() {
            let (limit, (fingerprint, held)) = (charge.limit().limit(), self.held(index));
            match slot.bucket {
                None if slot.dirty => held.forget(fingerprint),
                Some(bucket) if !charge.needs_permit() => {
                    let changed = slot.dirty.then(|| now.bucket_from_wall(bucket, limit));
                    held.write(fingerprint, changed, limit, now);
                }
                _ => {}
            }
        }
    }

    fn held(&mut self, index: usize) -> (Fingerprint, &mut ShardState) {
        let (fingerprint, shard) = self.places[index];
        let at = self.locked.partition_point(|(locked, _)| *locked < shard);
        (fingerprint, &mut self.locked[at].1)
    }
}

/// Permits are in steady time.
impl ChainPermits for LockedChain<'_> {
    fn places_for(&mut self, index: usize, id: &PermitId, limit: &Limit, _: Micros) -> Amount {
        let (now, (fingerprint, held)) = (self.now, self.held(index));
        held.places_for(id, fingerprint, limit, now)
    }

    fn is_held(&mut self, index: usize, id: &PermitId, _: Micros) -> bool {
        let (now, (fingerprint, held)) = (self.now, self.held(index));
        held.permits.is_held(fingerprint, id, now.steady)
    }

    fn hold(&mut self, index: usize, id: &PermitId, time: Duration, _: Micros) {
        let (now, (fingerprint, held)) = (self.now, self.held(index));
        held.permits.hold(fingerprint, id, now.steady + time);
    }

    fn release(&mut self, index: usize, id: &PermitId, _: Micros) {
        let (now, (fingerprint, held)) = (self.now, self.held(index));
        held.permits.release(fingerprint, id, now.steady);
    }
}
