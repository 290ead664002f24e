//! Denials without the store. A denial reports the level of the bucket, and without refunds a bucket fills no faster than its
//! rate: until it could cover the cost, the store would deny again.
//!
//! Every later answer about the bucket, allowed ones included, replaces or removes the note. So the wait that a cached denial reports
//! is never shorter than the store's own would be, except for what other instances have spent since.

mod slot;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use spile_core::{Charge, Charges, Micros, OneOrMany, Outcome, Reply, Verdict};
use spile_runtime::Runtime;

use self::slot::NoteSlot;
use crate::bucket_hash::{BucketHash, BucketHasher};
use crate::bucket_note::BucketNote;

/// How many buckets are remembered: a power of two. A note takes a cache line.
const SLOTS: usize = 1 << 14;
/// How many of them a bucket may be in. A flood of denied keys replaces the oldest of these.
const WAYS: usize = 4;
/// Changes are counted in this many groups of buckets: a power of two.
const GROUPS: usize = 1 << 12;
/// A clock of the store that is behind by this much has been stepped back. Less leaves no bucket so far ahead that it is rebased.
const STEP_US: u64 = 500_000;
/// The longest time for which a denial is trusted.
const LONGEST: Duration = Duration::from_secs(10);

/// Remembers denials of the store for a short time.
///
/// Questions read it without a lock and never wait for each other. What changes a bucket through the same limiter removes its note.
pub(crate) struct DenyCache {
    interval_us: u64,
    hasher: BucketHasher,
    /// Made by the first denial.
    slots: OnceLock<Box<[NoteSlot]>>,
    /// Counts the changes of each group, so that an answer from before one is not remembered after it.
    changes: Box<[AtomicU32]>,
}

/// When a question was sent, and how many changes there had been of its buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentQuestion {
    pub(crate) at: Micros,
    pub(crate) changes: u32,
}

impl DenyCache {
    /// A cache that trusts a denial for this long. `None` for no time at all.
    pub(crate) fn new(interval: Duration, runtime: &Runtime) -> Option<Self> {
        let interval_us = interval.min(LONGEST).as_micros() as u64;
        (interval_us > 0).then(|| Self {
            interval_us,
            hasher: BucketHasher::new(runtime),
            slots: OnceLock::new(),
            changes: std::iter::repeat_with(AtomicU32::default).take(GROUPS).collect(),
        })
    }

    /// The denial that the store would give at `now`. `None` if it has to be asked.
    ///
    /// In the last part of a note's time, `renew` is called once with the charge that it is about: so that not all questions go
    /// to the store when it is too old.
    pub(crate) fn deny(
        &self,
        charges: &Charges<'_>,
        now: Micros,
        renew: impl Fn(&Charge<'_>),
    ) -> Option<Outcome> {
        let slots = self.slots.get()?;
        if let [charge] = &**charges {
            let (slot, note) = self.note(slots, charge, now).filter(|(_, note)| denies(note, charge, now))?;
            self.renew_in_time(slot, &note, charge, now, renew);
            let buckets = OneOrMany::one(note.bucket);
            return Some(Outcome { allowed: false, at: note.store_time(now), buckets });
        }
        self.deny_chain(slots, charges, now, renew)
    }

    fn deny_chain(
        &self,
        slots: &[NoteSlot],
        charges: &[Charge<'_>],
        now: Micros,
        renew: impl Fn(&Charge<'_>),
    ) -> Option<Outcome> {
        let notes: Option<Vec<_>> = charges.iter().map(|charge| self.note(slots, charge, now)).collect();
        let notes = notes?;
        let denies = |(charge, (_, note)): (&Charge<'_>, &(_, BucketNote))| denies(note, charge, now);
        if !charges.iter().zip(&notes).any(denies) {
            return None;
        }
        for (charge, (slot, note)) in charges.iter().zip(&notes) {
            self.renew_in_time(slot, note, charge, now, &renew);
        }
        // The answers may be of nodes whose clocks differ. The decision's time is that of the first one.
        let at = notes.first()?.1.store_time(now);
        let buckets = notes.iter().map(|(_, note)| note.bucket_by_clock_of(&notes[0].1)).collect();
        Some(Outcome { allowed: false, at, buckets })
    }

    /// Learns from an answer: remembers the levels of the buckets of a denied question, unless one of them has changed since it was
    /// sent, and forgets the buckets of any other.
    ///
    /// A denied peek renews notes, and makes none: it does not rebase a bucket that lies ahead of the store's clock, so that one peek after
    /// the other would report it as empty from then on. For the same reason notes are removed if that clock has been stepped back since.
    pub(crate) fn learn(
        &self,
        charges: &Charges<'_>,
        reply: &Reply,
        sent: SentQuestion,
        heard: Micros,
        is_peek: bool,
    ) {
        let note = |charge: &Charge<'_>| self.slots.get().and_then(|slots| self.note(slots, charge, heard));
        let is_behind = |(_, note): (_, BucketNote)| note.store_time(heard) >= reply.at.plus_us(STEP_US);
        if reply.verdict != Verdict::Denied || is_peek && charges.iter().filter_map(note).any(is_behind) {
            return self.forget(charges);
        }
        // A clock that has been stepped, or an answer that is too old to be of use.
        if heard < sent.at || heard.since_us(sent.at) >= self.interval_us {
            return;
        }
        let make = || std::iter::repeat_with(NoteSlot::default).take(SLOTS).collect();
        let slots = self.slots.get_or_init(make);
        let mut written = OneOrMany::new();
        let levels = charges.iter().zip(reply.buckets.iter());
        for (charge, &bucket) in levels.filter(|(charge, _)| !is_peek || note(charge).is_some()) {
            let hash = self.hasher.hash(charge);
            let slot = place_for(slots, hash);
            slot.write(hash, &BucketNote { bucket, store_heard: reply.at, sent: sent.at, heard });
            // Another thread may have chosen another slot at the same time.
            for other in ways(slots, hash).iter().filter(|other| !std::ptr::eq(*other, slot)) {
                other.remove(hash);
            }
            written.push((slot, hash));
        }
        // Looked at after writing: a change that is noted in between has found nothing to remove. With the fence in `forget`, one of
        // the two sees what the other did.
        fence(Ordering::SeqCst);
        if self.changes_of(charges) != sent.changes {
            for (slot, hash) in written {
                slot.remove(hash);
            }
        }
    }

    /// Forgets these buckets: something was spent, charged or given back, so their levels are others by now.
    pub(crate) fn forget(&self, charges: &Charges<'_>) {
        for charge in charges.iter() {
            let hash = self.hasher.hash(charge);
            self.group(hash).fetch_add(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            for slot in self.slots.get().into_iter().flat_map(|slots| ways(slots, hash)) {
                slot.remove(hash);
            }
        }
    }

    fn note<'s>(
        &self,
        slots: &'s [NoteSlot],
        charge: &Charge<'_>,
        now: Micros,
    ) -> Option<(&'s NoteSlot, BucketNote)> {
        let hash = self.hasher.hash(charge);
        ways(slots, hash)
            .iter()
            .find_map(|slot| slot.read(hash).map(|note| (slot, note)))
            .filter(|(_, note)| note.heard <= now && note.age_us(now) < self.interval_us)
    }

    /// How long notes that are to be renewed are collected. A separate call costs the store as much as ten notes in a call of many.
    /// An eighth of the interval is left for the answer.
    pub(crate) const fn collects(&self) -> Duration {
        Duration::from_micros(self.interval_us / 4)
    }

    /// Calls `renew` for one question in the last three eighths of a note's time.
    fn renew_in_time(
        &self,
        slot: &NoteSlot,
        note: &BucketNote,
        charge: &Charge<'_>,
        now: Micros,
        renew: impl Fn(&Charge<'_>),
    ) {
        if note.age_us(now) >= self.interval_us - self.interval_us / 8 * 3 && slot.claim(note) {
            renew(charge);
        }
    }

    /// How many changes there have been of the groups of these buckets.
    pub(crate) fn changes_of(&self, charges: &Charges<'_>) -> u32 {
        let of = |charge: &Charge<'_>| self.group(self.hasher.hash(charge)).load(Ordering::Acquire);
        charges.iter().map(of).fold(0, u32::wrapping_add)
    }

    fn group(&self, hash: BucketHash) -> &AtomicU32 {
        &self.changes[hash.group(GROUPS)]
    }
}

/// True if time cannot have brought the bucket as much as the cost.
fn denies(note: &BucketNote, charge: &Charge<'_>, now: Micros) -> bool {
    let limit = charge.limit().limit();
    !limit.is_covered(charge.cost(), note.at_most(limit, now))
}

/// The slots that a bucket may be in.
fn ways(slots: &[NoteSlot], hash: BucketHash) -> &[NoteSlot] {
    let first = hash.place(slots.len() / WAYS) * WAYS;
    &slots[first..first + WAYS]
}

/// The slot that has the bucket already, else the one with the oldest note.
fn place_for(slots: &[NoteSlot], hash: BucketHash) -> &NoteSlot {
    let ways = ways(slots, hash);
    let known = ways.iter().find(|slot| slot.holds(hash));
    known.or_else(|| ways.iter().min_by_key(|slot| slot.sent())).unwrap_or(&ways[0])
}
