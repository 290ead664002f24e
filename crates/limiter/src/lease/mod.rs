//! Leases: tokens that this instance has already taken from the store, and spends by itself.
//!
//! Leased tokens are paid for, so that nothing can over-admit. A bucket has a lease only while it is asked for often.

mod demand;
#[expect(clippy::module_inception, reason = "the noun of the room")]
mod lease;
mod pace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use spile_core::{Amount, Bucket, Charge, Charges, Micros, NamedLimit, Reply, Verdict};
use spile_runtime::Runtime;

use self::lease::{Lease, Lot, Terms};
pub(crate) use self::lease::{LeaseAnswer, LeaseQuestion, SetAside};
use crate::bucket_hash::{BucketHash, BucketHasher};
use crate::bucket_note::BucketNote;

/// How often a full shard looks for leases that are no longer used.
const SWEEP_EVERY_US: u64 = 20_000;
/// Locks, so that threads that ask for different keys rarely wait for each other: a power of two.
const SHARDS: usize = 64;
/// The most buckets whose demand is known, in each shard. Questions about others go to the store.
const MOST_IN_SHARD: usize = 1_024;

/// The leases of one shard.
#[derive(Default)]
struct LeaseShard {
    /// The seed of a `BucketHash` is random, so that this hash needs none.
    leases: HashMap<BucketHash, Lease, foldhash::fast::FixedState>,
    /// When idle leases were last removed.
    swept: Micros,
}

/// The leases of one limiter.
pub(crate) struct Leases {
    hasher: BucketHasher,
    shards: Box<[Mutex<LeaseShard>]>,
    terms: Terms,
    /// Incremented when limits may have changed.
    limits_version: AtomicU32,
    /// Counts of what leases have done.
    counts: Mutex<LeaseStats>,
    /// Leases whose tasks have ended with their runtime.
    orphans: Mutex<Vec<Portion>>,
    has_orphans: AtomicBool,
}

impl LeaseShard {
    /// True if the shard has the bucket or can take it. A full shard is swept at intervals, not for each new key of a flood.
    fn has_room_for(&mut self, hash: BucketHash, now: Micros) -> bool {
        if self.leases.len() < MOST_IN_SHARD || self.leases.contains_key(&hash) {
            return true;
        }
        if now.since_us(self.swept) >= SWEEP_EVERY_US || now < self.swept {
            self.swept = now;
            self.leases.retain(|_, lease| !lease.is_idle(now));
        }
        self.leases.len() < MOST_IN_SHARD
    }
}

/// Counts of the leases of a limiter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Buckets of which this instance holds tokens.
    pub buckets: u64,
    /// Tokens that this instance holds.
    pub tokens: u64,
    /// Portions that the store has granted.
    pub portions: u64,
    /// Tokens of all portions.
    pub taken: u64,
    /// Tokens that were returned to the store unspent.
    pub returned: u64,
}

/// Tokens of a bucket to take from the store or to return to it.
#[derive(Clone)]
pub(crate) struct Portion {
    pub(crate) key: Arc<str>,
    pub(crate) limit: NamedLimit,
    pub(crate) amount: Amount,
    /// The epoch of the lease in which it is asked for.
    pub(crate) epoch: u32,
}

impl Leases {
    pub(crate) fn new(share: f64, deadline: Duration, runtime: &Runtime) -> Self {
        Self {
            hasher: BucketHasher::new(runtime),
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            terms: Terms { share, waits_us: u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX) },
            limits_version: AtomicU32::new(0),
            counts: Mutex::default(),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
        }
    }

    /// True if one of these charges can be spent from a lease.
    pub(crate) fn concern(charges: &[Charge<'_>]) -> bool {
        charges.iter().any(|charge| charge.limit().limit().lease().is_some())
    }

    /// Spends a charge as far as its lease covers it. `None` if its limit has none. Also returns the portion to take from the store.
    pub(crate) fn spend(
        &self,
        charge: &Charge<'_>,
        asked: LeaseQuestion,
        now: Micros,
    ) -> Option<(LeaseAnswer, Option<Portion>)> {
        charge.limit().limit().lease()?;
        let (hash, mut shard) = self.locked(charge);
        if !shard.has_room_for(hash, now) {
            return None;
        }
        let lease = shard.leases.entry(hash).or_insert_with(|| Lease::new(charge, self.terms));
        if !lease.is_of(charge) {
            return None;
        }
        lease.confirm(charge.limit(), self.limits_version());
        let answer = lease.spend(charge.cost(), asked, now);
        // A question to the store must not compete with a portion: it takes one once it was allowed.
        let takes = matches!(answer, LeaseAnswer::Covers(..) | LeaseAnswer::Waits);
        let portion = if takes { lease.start_portion(now) } else { None };
        Some((answer, portion))
    }

    /// The portion to take from the store for a charge that it has allowed. Its limit has a lease.
    pub(crate) fn next_portion(&self, charge: &Charge<'_>, now: Micros) -> Option<Portion> {
        self.with(charge, |lease| lease.start_portion(now)).flatten()
    }

    /// Ends the time that tokens were set aside for a charge: they were spent, or return to the lease. Returns whether a task has to be
    /// started that returns them to the store.
    pub(crate) fn resolve(&self, charge: &Charge<'_>, aside: &SetAside, is_spent: bool) -> bool {
        let resolve = |lease: &mut Lease| lease.resolve(aside, is_spent);
        aside.amount() > Amount::ZERO && self.with(charge, resolve).unwrap_or(false)
    }

    /// Notes that a caller was denied and waits as long as the outcome says.
    pub(crate) fn promise(&self, charges: &[Charge<'_>], at: Micros, buckets: &[Bucket], now: Micros) {
        for (charge, bucket) in charges.iter().zip(buckets) {
            let limit = charge.limit().limit();
            if limit.lease().is_some() {
                let wait_us = bucket.wait_for_us(limit, limit.asked(charge.cost()), at);
                self.with(charge, |lease| lease.pace.promise(now.plus_us(wait_us), now));
            }
        }
    }

    /// Notes the answer of the store about the buckets of these charges, as far as they have leases.
    pub(crate) fn learn(&self, charges: &[Charge<'_>], reply: &Reply, sent: Micros, heard: Micros) {
        for (charge, &bucket) in charges.iter().zip(reply.buckets.iter()) {
            if charge.limit().limit().lease().is_some() {
                let note = BucketNote { bucket, store_heard: reply.at, sent, heard };
                self.with(charge, |lease| lease.learn(note));
            }
        }
        if reply.verdict == Verdict::Denied {
            self.promise(charges, reply.at, &reply.buckets, heard);
        }
    }

    /// Drops the tokens of buckets that were reset.
    pub(crate) fn forget(&self, charges: &Charges<'_>) {
        for charge in charges.iter().filter(|charge| charge.limit().limit().lease().is_some()) {
            self.with(charge, Lease::forget);
        }
    }

    /// Adds a grant of the store. Returns whether a task has to be started that returns the rest of it.
    pub(crate) fn granted(&self, charge: &Charge<'_>, amount: Amount, epoch: u32, note: BucketNote) -> bool {
        {
            let mut counts = self.counts.lock();
            counts.portions += 1;
            counts.taken += amount.whole_tokens();
        }
        let limit = *charge.limit().limit();
        self.with(charge, |lease| lease.granted(amount, limit, epoch, note)).unwrap_or(false)
    }

    /// Notes that a portion did not come.
    pub(crate) fn failed(&self, charge: &Charge<'_>, now: Micros) {
        self.with(charge, |lease| lease.taking_until = now);
    }

    /// Notes that limits may have changed. Tokens that were taken before are spent by questions that name the same limit, but are not
    /// returned to the store before one has.
    pub(crate) fn limits_changed(&self) {
        self.limits_version.fetch_add(1, Ordering::AcqRel);
    }

    fn limits_version(&self) -> u32 {
        self.limits_version.load(Ordering::Acquire)
    }

    /// Takes the ended lots out of a lease. Returns the tokens that go back to the store, and how long the next lot lasts.
    pub(crate) fn end(&self, charge: &Charge<'_>, now: Micros) -> (Vec<Portion>, Option<u64>) {
        let end = |lease: &mut Lease| (self.returned(lease, false, now), lease.next_end_us(now));
        self.with(charge, end).unwrap_or_default()
    }

    /// Takes all lots out, and returns the tokens that go back to the store.
    pub(crate) fn end_all(&self, now: Micros) -> Vec<Portion> {
        let end = |lease: &mut Lease| self.returned(lease, true, now);
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().leases.values_mut().flat_map(end).collect::<Vec<_>>())
            .collect()
    }

    /// The tokens of ended lots, or of all, under the limits that they were taken under.
    fn returned(&self, lease: &mut Lease, all: bool, now: Micros) -> Vec<Portion> {
        let mut lots = lease.take_ended(all, now);
        if lease.confirmed != self.limits_version() {
            lots.clear();
        }
        let limit = |lot: &Lot| NamedLimit::new(lease.limit.name().clone(), lot.limit);
        let portion = |lot: Lot| lease.portion_of(limit(&lot), lot.amount);
        lots.into_iter().map(portion).collect()
    }

    /// Notes that no task returns the rest of this lease.
    pub(crate) fn add_orphan(&self, portion: Portion) {
        let mut orphans = self.orphans.lock();
        orphans.push(portion);
        self.has_orphans.store(true, Ordering::Release);
    }

    pub(crate) fn has_orphans(&self) -> bool {
        self.has_orphans.load(Ordering::Acquire)
    }

    /// Takes the leases that need a task to return the rest of them.
    pub(crate) fn take_orphans(&self) -> Vec<Portion> {
        let mut orphans = self.orphans.lock();
        self.has_orphans.store(false, Ordering::Release);
        std::mem::take(&mut orphans)
    }

    /// The tokens that this instance holds of a charge's bucket.
    pub(crate) fn amount_of(&self, charge: &Charge<'_>) -> Amount {
        let lease = charge.limit().limit().lease();
        lease.and_then(|_| self.with(charge, |lease| lease.amount())).unwrap_or_default()
    }

    pub(crate) fn gave_back(&self, amount: Amount) {
        self.counts.lock().returned += amount.whole_tokens();
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        let mut stats = *self.counts.lock();
        for shard in &self.shards {
            let shard = shard.lock();
            for amount in shard.leases.values().map(Lease::amount).filter(|amount| *amount > Amount::ZERO) {
                stats.buckets += 1;
                stats.tokens += amount.whole_tokens();
            }
        }
        stats
    }

    fn locked(&self, charge: &Charge<'_>) -> (BucketHash, MutexGuard<'_, LeaseShard>) {
        let hash = self.hasher.hash(charge);
        (hash, self.shards[hash.group(SHARDS)].lock())
    }

    fn with<T>(&self, charge: &Charge<'_>, act: impl FnOnce(&mut Lease) -> T) -> Option<T> {
        let (hash, mut shard) = self.locked(charge);
        shard.leases.get_mut(&hash).filter(|lease| lease.is_of(charge)).map(act)
    }
}
