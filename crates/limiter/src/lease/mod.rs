//! Leases: tokens that this instance has already taken from the store, and spends by itself.
//!
//! What is spent here is paid for, so that nothing can over-admit. A bucket has a lease only while it is asked for often.

mod demand;
#[expect(clippy::module_inception, reason = "the noun of the room")]
mod lease;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use spile_core::{Amount, Charge, Charges, Micros, NamedLimit, Outcome};
use spile_runtime::Runtime;

use self::lease::{Lease, LeaseEnd};
pub(crate) use self::lease::{LeaseAnswer, SetAside};
use crate::bucket_hash::{BucketHash, BucketHasher};
use crate::bucket_note::BucketNote;

/// How often a full shard looks for leases that are not used any more.
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
    /// When idle ones were last looked for.
    swept: Micros,
}

/// The leases of one limiter.
pub(crate) struct Leases {
    hasher: BucketHasher,
    shards: Box<[Mutex<LeaseShard>]>,
    /// The most that may be here, of what a bucket has left.
    share: f64,
    /// The longest that a question waits for the store.
    waits_us: u64,
    /// Incremented when limits may have changed.
    limits_version: AtomicU32,
    counts: LeaseCounts,
    /// Leases whose tasks ended with their runtime.
    orphans: Mutex<Vec<Portion>>,
    has_orphans: AtomicBool,
}

#[derive(Default)]
struct LeaseCounts {
    portions: AtomicU64,
    taken: AtomicU64,
    returned: AtomicU64,
}

impl LeaseShard {
    /// True if the bucket is here, or can be. A full shard is swept now and then, not for each new key of a flood.
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

/// What the leases of a limiter hold and have done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Buckets of which tokens are here.
    pub buckets: u64,
    /// Tokens that are here.
    pub tokens: u64,
    /// Portions that the store has given.
    pub portions: u64,
    /// Tokens of all portions.
    pub taken: u64,
    /// Tokens that went back to the store unspent.
    pub returned: u64,
}

/// Tokens to take from the store, or to give back to it, under a limit.
#[derive(Clone)]
pub(crate) struct Portion {
    pub(crate) key: Arc<str>,
    pub(crate) limit: NamedLimit,
    pub(crate) amount: Amount,
    /// How often the bucket had been reset when it was asked for.
    pub(crate) resets: u32,
}

/// What a charge finds: the answer of its lease, and what is to be done for the lease meanwhile.
pub(crate) struct Leased {
    pub(crate) answer: LeaseAnswer,
    pub(crate) take: Option<Portion>,
    pub(crate) give_back: Option<Portion>,
}

impl Leases {
    pub(crate) fn new(share: f64, deadline: Duration, runtime: &Runtime) -> Self {
        Self {
            hasher: BucketHasher::new(runtime),
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            share,
            waits_us: u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX),
            limits_version: AtomicU32::new(0),
            counts: LeaseCounts::default(),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
        }
    }

    /// True if one of these charges can be spent from a lease.
    pub(crate) fn concern(charges: &[Charge<'_>]) -> bool {
        charges.iter().any(|charge| charge.limit().limit().lease().is_some())
    }

    /// Spends a charge as far as its lease goes. `None` if its limit has none.
    pub(crate) fn spend(&self, charge: &Charge<'_>, is_alone: bool, now: Micros) -> Option<Leased> {
        charge.limit().limit().lease()?;
        let (hash, mut shard) = self.locked(charge);
        if !shard.has_room_for(hash, now) {
            return None;
        }
        let lease = shard.leases.entry(hash).or_insert_with(|| Lease::new(charge, self.share, self.waits_us));
        if !lease.is_of(charge) {
            return None;
        }
        let portion = |lease: &Lease, amount| Portion {
            key: Arc::clone(&lease.key),
            limit: charge.limit().clone(),
            amount,
            resets: lease.resets(),
        };
        lease.confirm(charge.limit(), self.limits_version());
        let returned = lease.take_ended(now);
        let give_back = (returned > Amount::ZERO).then(|| portion(lease, returned));
        let (answer, take) = lease.spend(charge.cost(), is_alone, now);
        let take = take.map(|amount| portion(lease, amount));
        Some(Leased { answer, take, give_back })
    }

    /// Puts tokens back that were set aside for a charge.
    pub(crate) fn put_back(&self, charge: &Charge<'_>, aside: &SetAside) {
        if aside.amount() > Amount::ZERO {
            self.with(charge, |lease| lease.put_back(aside));
        }
    }

    /// Learns how the buckets of these charges stand, as far as they have leases.
    pub(crate) fn learn(&self, charges: &[Charge<'_>], outcome: &Outcome, sent: Micros, heard: Micros) {
        for (charge, &bucket) in charges.iter().zip(outcome.buckets.iter()) {
            if charge.limit().limit().lease().is_some() {
                let note = BucketNote { bucket, store_heard: outcome.at, sent, heard };
                self.with(charge, |lease| lease.learn(note));
            }
        }
    }

    /// Forgets what is here of buckets that were reset.
    pub(crate) fn forget(&self, charges: &Charges<'_>) {
        for charge in charges.iter().filter(|charge| charge.limit().limit().lease().is_some()) {
            self.with(charge, Lease::forget);
        }
    }

    /// A portion has come. Returns whether a task has to be started that returns what is left of it.
    pub(crate) fn granted(&self, charge: &Charge<'_>, amount: Amount, resets: u32, note: BucketNote) -> bool {
        self.counts.portions.fetch_add(1, Ordering::Relaxed);
        self.counts.taken.fetch_add(amount.whole_tokens(), Ordering::Relaxed);
        self.with(charge, |lease| lease.granted(amount, resets, note, note.heard)).unwrap_or(false)
    }

    /// A portion did not come.
    pub(crate) fn failed(&self, charge: &Charge<'_>, now: Micros) {
        self.with(charge, |lease| lease.failed(now));
    }

    /// Notes that limits may have changed. Tokens that were taken before are spent by questions that name the same limit, but do not
    /// go back to the store before one has.
    pub(crate) fn limits_changed(&self) {
        self.limits_version.fetch_add(1, Ordering::AcqRel);
    }

    fn limits_version(&self) -> u32 {
        self.limits_version.load(Ordering::Acquire)
    }

    /// Ends a lease whose time is over. Returns what goes back to the store, or how long to wait.
    pub(crate) fn end(&self, charge: &Charge<'_>, now: Micros) -> Result<Option<Portion>, u64> {
        let ended = |lease: &mut Lease| match lease.end(now) {
            LeaseEnd::Wait(us) => Err(us),
            LeaseEnd::Return(amount) => Ok(self.returned(lease, amount)),
        };
        self.with(charge, ended).unwrap_or(Ok(None))
    }

    /// What goes back of the tokens that an ended lease had left, under the limit that they were taken under.
    fn returned(&self, lease: &Lease, amount: Amount) -> Option<Portion> {
        let (key, limit, resets) = (Arc::clone(&lease.key), lease.limit.clone(), lease.resets());
        let returns = amount > Amount::ZERO && lease.is_confirmed(self.limits_version());
        returns.then_some(Portion { key, limit, amount, resets })
    }

    /// Ends all leases, and returns what goes back to the store.
    pub(crate) fn end_all(&self, now: Micros) -> Vec<Portion> {
        let ended = |lease: &mut Lease| match lease.end_now(now) {
            LeaseEnd::Return(amount) => self.returned(lease, amount),
            LeaseEnd::Wait(_) => None,
        };
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().leases.values_mut().filter_map(ended).collect::<Vec<_>>())
            .collect()
    }

    /// Notes that nothing returns what is left of this lease.
    pub(crate) fn add_orphan(&self, portion: Portion) {
        let mut orphans = self.orphans.lock();
        orphans.push(portion);
        self.has_orphans.store(true, Ordering::Release);
    }

    pub(crate) fn has_orphans(&self) -> bool {
        self.has_orphans.load(Ordering::Acquire)
    }

    /// The leases that need a task to return what is left of them.
    pub(crate) fn take_orphans(&self) -> Vec<Portion> {
        if !self.has_orphans() {
            return Vec::new();
        }
        let mut orphans = self.orphans.lock();
        self.has_orphans.store(false, Ordering::Release);
        std::mem::take(&mut orphans)
    }

    /// The tokens that are here of a charge's bucket.
    pub(crate) fn amount_of(&self, charge: &Charge<'_>) -> Amount {
        charge
            .limit()
            .limit()
            .lease()
            .and_then(|_| self.with(charge, |lease| lease.amount()))
            .unwrap_or_default()
    }

    pub(crate) fn gave_back(&self, amount: Amount) {
        self.counts.returned.fetch_add(amount.whole_tokens(), Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = LeaseStats {
            portions: count(&self.counts.portions),
            taken: count(&self.counts.taken),
            returned: count(&self.counts.returned),
            ..LeaseStats::default()
        };
        for shard in &self.shards {
            for amount in
                shard.lock().leases.values().map(Lease::amount).filter(|amount| *amount > Amount::ZERO)
            {
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
