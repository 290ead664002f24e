//! The store: finds the shards of a chain, locks them in one order, and runs the operation.

use std::sync::Arc;

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use spile_core::{
    Bucket, BucketSlot, Charge, ChargeOutcome, Charges, Clock, Cost, EmbeddedStore, HeldPermit, Key, Micros,
    NamedLimit, Outcome, PartialOutcome, PermitId, PermitStep, RefundId, RefundOutcome, ReservationMarker,
    SettleOutcome, Spent, Store, StoreError, SystemClock,
};

use crate::table::entry::BucketEntry;
use crate::table::fingerprint::{Fingerprint, Fingerprinter, MAX_SHARDS, Seeds};
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
    clock: C,
    fingerprinter: Fingerprinter,
    shards: Box<[Shard]>,
    permit_room: Arc<PermitRoom>,
}

/// What a store holds and has evicted. Can be added up over stores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Buckets held.
    pub keys: usize,
    /// Bytes that the tables take.
    pub bytes: usize,
    /// Buckets that were evicted at the bound before they were full: each gave its key some tokens early.
    pub evicted: u64,
    /// Permits held.
    pub permits: usize,
    /// Permits that ended because they were neither renewed nor released in time.
    pub expired_permits: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            bytes: self.bytes + other.bytes,
            evicted: self.evicted + other.evicted,
            permits: self.permits + other.permits,
            expired_permits: self.expired_permits + other.expired_permits,
        }
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
    /// Tells the time by `clock`.
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

    /// How many slots each new key sweeps for full buckets. With zero, full buckets stay until the bound is reached.
    pub const fn sweep(mut self, slots: usize) -> Self {
        self.sweep = slots;
        self
    }

    /// Builds an empty store. It allocates memory as keys arrive.
    pub fn build(self) -> MemoryStore<C> {
        self.build_with(Fingerprinter::new())
    }

    fn build_with(self, fingerprinter: Fingerprinter) -> MemoryStore<C> {
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

    /// Spends synchronously: this store waits only for locks.
    #[inline]
    pub fn spend_now(&self, charges: &Charges<'_>) -> Outcome {
        if let [charge] = &**charges
            && !charge.needs_permit()
        {
            return self.spend_one(charge.key(), charge.limit(), charge.cost()).into();
        }
        self.spend_chain(charges)
    }

    #[inline(never)]
    fn spend_chain(&self, charges: &Charges<'_>) -> Outcome {
        self.step(charges, spile_core::spend)
    }

    /// Spends a single charge, without the overhead of a chain. A cost above the capacity is always denied. The limit is not a
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
        let mut now = self.clock.now();
        let mut held = self.shards[self.shard(fingerprint)].lock();
        let entry = held.entry(fingerprint);
        let stand = match entry.as_ref().map(|entry| entry.bucket()) {
            // If the thread was suspended before the lock, the bucket may have been written later than `now`.
            Some(bucket) if bucket.written_at() > now => {
                now = self.clock.now();
                bucket.rebased(limit, now)
            }
            Some(bucket) => bucket,
            None => Bucket::full(limit, now),
        };
        let spent = stand.spend(limit, cost, now);
        let allowed = spent.is_some();
        if cost == Cost::ZERO {
            return Spent { allowed, at: now, bucket: stand };
        }
        let bucket = spent.unwrap_or(stand);
        match entry {
            Some(entry) if allowed || stand.written_at() < entry.bucket().written_at() => {
                entry.write(bucket, limit);
            }
            Some(entry) => entry.denied_by(limit),
            None if allowed => held.insert(BucketEntry::new(fingerprint, bucket, limit), now),
            None => {}
        }
        Spent { allowed, at: now, bucket }
    }

    fn step<T>(
        &self,
        charges: &Charges<'_>,
        step: impl FnOnce(&Charges<'_>, &mut [BucketSlot], Micros) -> T,
    ) -> T {
        let mut chain = LockedChain::new(self, charges);
        let now = self.clock.now();
        chain.count_places(charges, None, now);
        let taken = step(charges, &mut chain.slots, now);
        chain.write_back(charges, now);
        taken
    }

    /// Takes, keeps or releases a permit.
    pub fn permit_now(&self, charges: &Charges<'_>, id: &PermitId, step: PermitStep) -> Outcome {
        if matches!(step, PermitStep::Acquire | PermitStep::Retake) {
            self.make_room_for_permits();
        }
        let mut chain = LockedChain::new(self, charges);
        let now = self.clock.now();
        match step {
            PermitStep::Acquire | PermitStep::Retake => {
                chain.count_places(charges, Some(id), now);
                let outcome = spile_core::acquire(charges, &mut chain.slots, now);
                if outcome.allowed {
                    chain.hold(charges, id, now);
                }
                chain.write_back(charges, now);
                outcome
            }
            PermitStep::Renew => {
                let allowed = chain.is_held(charges, id, now);
                if allowed {
                    chain.hold(charges, id, now);
                }
                Outcome { allowed, ..spile_core::peek(charges, &mut chain.slots, now) }
            }
            PermitStep::Release => {
                let allowed = chain.release(charges, id, now);
                let outcome = spile_core::refund(charges, &mut chain.slots, now);
                chain.write_back(charges, now);
                Outcome { allowed, ..outcome }
            }
        }
    }

    /// Removes ended permits of all shards if the store is full of permits. Locks one shard at a time, so the caller has locked
    /// none.
    fn make_room_for_permits(&self) {
        if self.permit_room.is_full() {
            let now = self.clock.now();
            if self.permit_room.is_sweep_due(now) {
                self.shards.iter().for_each(|shard| shard.lock().sweep_permits(now));
            }
        }
    }

    /// Who holds permits, for each charge.
    pub fn holders_now(&self, charges: &Charges<'_>) -> Vec<Vec<HeldPermit>> {
        let now = self.clock.now();
        let held = |charge: &Charge<'_>| {
            let (fingerprint, shard) = self.find(charge);
            if charge.needs_permit() {
                self.shards[shard].lock().holders(fingerprint, now)
            } else {
                Vec::new()
            }
        };
        charges.iter().map(held).collect()
    }

    fn find(&self, charge: &Charge<'_>) -> (Fingerprint, usize) {
        let fingerprint = self.fingerprinter.of(charge.key(), charge.limit());
        (fingerprint, self.shard(fingerprint))
    }

    const fn shard(&self, fingerprint: Fingerprint) -> usize {
        fingerprint.shard(self.shards.len())
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// Builds an empty store with the seeds of a snapshot.
    pub(crate) fn rebuild(self, seeds: Seeds) -> MemoryStore<C> {
        self.build_with(Fingerprinter::seeded(seeds))
    }
}

/// Access for snapshots.
impl<C: Clock> MemoryStore<C> {
    pub(crate) const fn clock(&self) -> &C {
        &self.clock
    }

    pub(crate) const fn fingerprinter(&self) -> &Fingerprinter {
        &self.fingerprinter
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Adds a saved permit.
    pub(crate) fn put_back_permit(&self, fingerprint: Fingerprint, id: &PermitId, until: Micros) {
        self.shards[self.shard(fingerprint)].lock().hold(fingerprint, id, until);
    }

    /// Adds saved buckets. Sorts them by shard, so that each shard is locked once.
    pub(crate) fn put_back(&self, entries: &mut [BucketEntry], now: Micros) {
        entries.sort_unstable_by_key(|entry| self.shard(entry.fingerprint()));
        for entries in entries.chunk_by(|a, b| self.shard(a.fingerprint()) == self.shard(b.fingerprint())) {
            let shard = self.shard(entries[0].fingerprint());
            self.shards[shard].lock().restore(entries, now);
        }
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Peeks synchronously.
    pub fn peek_now(&self, charges: &Charges<'_>) -> Outcome {
        let mut chain = LockedChain::new(self, charges);
        let now = self.clock.now();
        chain.count_places(charges, None, now);
        spile_core::peek(charges, &mut chain.slots, now)
    }

    /// Whether the store has a bucket for each charge. A bucket that was never spent from has none, and one that is full
    /// again may have none: both are full.
    pub fn has_buckets(&self, charges: &Charges<'_>) -> Vec<bool> {
        let has = |charge: &Charge<'_>| {
            let (fingerprint, shard) = self.find(charge);
            self.shards[shard].lock().bucket(fingerprint).is_some()
        };
        charges.iter().map(has).collect()
    }

    /// Spends as much as is available, synchronously.
    pub fn spend_up_to_now(&self, charges: &Charges<'_>) -> PartialOutcome {
        self.step(charges, spile_core::spend_up_to)
    }
}

impl<C: Clock> EmbeddedStore for MemoryStore<C> {
    #[inline]
    fn spend_now(&self, charges: &Charges<'_>) -> Outcome {
        self.spend_now(charges)
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        Ok(self.spend_now(charges))
    }

    #[inline]
    fn try_spend(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        Some(Ok(self.spend_now(charges)))
    }

    #[expect(clippy::inline_always, reason = "as `spend_one`")]
    #[inline(always)]
    fn try_spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        Some(self.spend_one(key, limit, cost))
    }

    #[inline]
    fn answers_at_once(&self) -> bool {
        true
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        Ok(self.peek_now(charges))
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        Ok(self.spend_up_to_now(charges))
    }

    async fn charge(&self, charges: &Charges<'_>) -> Result<ChargeOutcome, StoreError> {
        Ok(self.step(charges, spile_core::charge))
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        Ok(self.step(charges, spile_core::refund))
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        Ok(self.step(&id.mark(charges), spile_core::refund_once))
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> Result<SettleOutcome, StoreError> {
        Ok(self.step(&marker.settle(charges, actual), spile_core::settle))
    }

    async fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> Result<Outcome, StoreError> {
        Ok(self.permit_now(charges, id, step))
    }

    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        Ok(self.holders_now(charges))
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        LockedChain::new(self, charges).forget();
        Ok(())
    }
}

/// The locked shards of a chain, and its buckets.
// Aligned to a cache line: otherwise its speed depends on the depth of the caller's stack.
#[repr(align(64))]
struct LockedChain<'a> {
    /// Sorted by shard without duplicates, so that two chains cannot deadlock.
    locked: SmallVec<[(usize, MutexGuard<'a, ShardState>); 4]>,
    places: SmallVec<[(Fingerprint, usize); 4]>,
    slots: SmallVec<[BucketSlot; 4]>,
}

impl<'a> LockedChain<'a> {
    fn new<C: Clock>(store: &'a MemoryStore<C>, charges: &Charges<'_>) -> Self {
        let places: SmallVec<[_; 4]> = charges.iter().map(|charge| store.find(charge)).collect();
        let mut shards: SmallVec<[usize; 4]> = places.iter().map(|&(_, shard)| shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.into_iter().map(|shard| (shard, store.shards[shard].lock())).collect();
        let mut chain = Self { locked, places, slots: SmallVec::new() };
        chain.slots = (0..chain.places.len()).map(|index| BucketSlot::read(chain.read(index))).collect();
        chain
    }

    fn read(&mut self, index: usize) -> Option<Bucket> {
        let (fingerprint, held) = self.held(index);
        held.bucket(fingerprint)
    }

    /// Fills in how many places each concurrency has left, or how many this permit could take.
    fn count_places(&mut self, charges: &Charges<'_>, permit: Option<&PermitId>, now: Micros) {
        for (index, charge) in charges.iter().enumerate() {
            if charge.needs_permit() {
                let (fingerprint, held) = self.held(index);
                let limit = charge.limit().limit();
                let bucket = match permit {
                    Some(id) => held.places_for(id, fingerprint, limit, now),
                    None => held.places(fingerprint, limit, now),
                };
                self.slots[index] = BucketSlot::read(Some(bucket));
            }
        }
    }

    /// Notes a permit of each concurrency, or prolongs it.
    fn hold(&mut self, charges: &Charges<'_>, id: &PermitId, now: Micros) {
        for (index, charge) in charges.iter().enumerate() {
            if let Some(hold) = charge.limit().limit().hold() {
                let (fingerprint, held) = self.held(index);
                held.hold(fingerprint, id, now + hold);
            }
        }
    }

    /// Whether a permit is held in every concurrency.
    fn is_held(&mut self, charges: &Charges<'_>, id: &PermitId, now: Micros) -> bool {
        charges.iter().enumerate().filter(|(_, charge)| charge.needs_permit()).all(|(index, _)| {
            let (fingerprint, held) = self.held(index);
            held.is_held(fingerprint, id, now)
        })
    }

    /// Ends a permit, and tells whether it was held in any concurrency.
    fn release(&mut self, charges: &Charges<'_>, id: &PermitId, now: Micros) -> bool {
        let mut released = false;
        for (index, _) in charges.iter().enumerate().filter(|(_, charge)| charge.needs_permit()) {
            let (fingerprint, held) = self.held(index);
            released |= held.release(fingerprint, id, now);
        }
        released
    }

    /// Writes the changed buckets, and forgets those that were removed. An unchanged bucket with a cost was denied.
    fn write_back(&mut self, charges: &Charges<'_>, now: Micros) {
        for (index, charge) in charges.iter().enumerate().filter(|(_, charge)| !charge.needs_permit()) {
            let (BucketSlot { bucket, dirty }, limit) = (self.slots[index], charge.limit().limit());
            let (fingerprint, held) = self.held(index);
            match bucket {
                Some(bucket) if dirty => held.write(fingerprint, bucket, limit, now),
                Some(_) if charge.cost() > Cost::ZERO => held.denied(fingerprint, limit),
                None if dirty => held.forget(fingerprint),
                _ => {}
            }
        }
    }

    fn forget(&mut self) {
        for index in 0..self.places.len() {
            let (fingerprint, held) = self.held(index);
            held.forget(fingerprint);
        }
    }

    fn held(&mut self, index: usize) -> (Fingerprint, &mut ShardState) {
        let (fingerprint, shard) = self.places[index];
        let at = self.locked.partition_point(|(locked, _)| *locked < shard);
        (fingerprint, &mut self.locked[at].1)
    }
}
