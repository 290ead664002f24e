//! One bucket's lease: the tokens that are paid for, and when more are taken.

use std::sync::Arc;

use spile_core::{Bucket, Charge, MicroTokens, Micros, NamedLimit};

use super::demand::Demand;
use crate::bucket_note::BucketNote;

/// So many questions in a lease's time make a bucket hot.
const HOT: u32 = 10;
/// The fewest tokens that are worth a call.
const FEWEST: u32 = 2;
/// The shortest pause between two portions of a bucket that is nearly empty.
const SHORTEST_PAUSE_US: u64 = 1_000;
/// How long a portion may be under way before another one is asked for.
const PATIENCE_US: u64 = 1_000_000;
/// A bucket that has less than this part of its capacity is nearly empty.
const NEARLY_EMPTY: f64 = 0.06;

/// Tokens of one bucket that this instance has taken from the store and not spent yet. Has no `Debug`, because keys are not to be shown.
pub(super) struct Lease {
    pub(super) key: Arc<str>,
    pub(super) limit: NamedLimit,
    pub(super) tokens: u32,
    /// When the tokens go back.
    ends: Micros,
    /// True while a task waits for that.
    is_kept: bool,
    /// The bucket in the store as it was last told.
    note: Option<BucketNote>,
    demand: Demand,
    /// How much the last portion was.
    portion: u32,
    /// A portion is under way until then.
    taking_until: Micros,
    /// A bucket that is nearly empty is not asked for a portion before this.
    next_take: Micros,
    /// How long it is left alone then. Zero until the first portion.
    pause_us: u64,
    /// The most that may be here, of what the bucket has left.
    share: f64,
}

/// What a lease does with a charge.
#[derive(Debug)]
pub(crate) enum LeaseAnswer {
    /// It covers the charge. The bucket afterwards, with the tokens that are here.
    Covers(BucketNote),
    /// It denies the charge: the bucket is nearly empty, and the next portion is not due.
    Denies(BucketNote),
    /// The store has to be asked for the cost less these tokens, which are set aside.
    Asks(u32),
}

/// What is to be done for a lease whose time may be over.
#[derive(Debug)]
pub(super) enum LeaseEnd {
    /// Nothing for so many microseconds.
    Wait(u64),
    /// These tokens go back to the store.
    Return(u32),
}

impl Lease {
    pub(super) fn new(charge: &Charge<'_>, share: f64) -> Self {
        Self {
            key: charge.key().as_str().into(),
            limit: charge.limit().clone(),
            tokens: 0,
            ends: Micros::default(),
            is_kept: false,
            note: None,
            demand: Demand::default(),
            portion: 0,
            taking_until: Micros::default(),
            next_take: Micros::default(),
            pause_us: 0,
            share,
        }
    }

    pub(super) fn is_of(&self, charge: &Charge<'_>) -> bool {
        self.limit.tag() == charge.limit().tag() && *self.key == *charge.key().as_str()
    }

    /// True if forgetting it loses nothing.
    pub(super) fn is_idle(&self, now: Micros) -> bool {
        self.tokens == 0
            && !self.is_kept
            && now >= self.taking_until
            && !self.demand.is_recent(now, self.lease_us())
    }

    /// Spends from it, as far as it goes, and says how many tokens are to be taken from the store meanwhile. A denial is only
    /// given to a charge that is alone in its chain: of the others the store has to be asked anyway.
    pub(super) fn spend(&mut self, cost: u32, is_alone: bool, now: Micros) -> (LeaseAnswer, Option<u32>) {
        self.demand.add(cost, now, self.lease_us());
        self.drop_overflow(now);
        let usable = self.usable(now);
        if let (Some(left), Some(note)) = (usable.checked_sub(cost), self.note) {
            self.tokens = left;
            return (LeaseAnswer::Covers(self.standing(&note)), self.portion(now));
        }
        let is_due = now >= self.next_take;
        let portion = self.portion(now);
        if let Some(note) =
            self.note.filter(|note| is_alone && self.is_hot() && self.is_nearly_empty(note, now))
            && (!is_due || portion.is_some_and(|portion| portion >= cost))
        {
            return (LeaseAnswer::Denies(self.until_next_take(&note, cost, now)), portion);
        }
        self.tokens -= usable;
        (LeaseAnswer::Asks(usable), portion)
    }

    fn usable(&self, now: Micros) -> u32 {
        if now < self.ends { self.tokens } else { 0 }
    }

    /// How many tokens are to be taken from the store now.
    fn portion(&mut self, now: Micros) -> Option<u32> {
        let note = self.note?;
        if self.usable(now) > self.portion / 4 || now < self.taking_until || !self.is_hot() {
            return None;
        }
        if self.is_nearly_empty(&note, now) {
            if now < self.next_take {
                return None;
            }
            self.next_take = now.plus_us(self.pause_us());
        }
        let most = self.wanted(&note, now).min((self.level(&note, now) * self.share) as u64);
        let portion = u32::try_from(most).unwrap_or(u32::MAX).saturating_sub(self.usable(now));
        if portion < FEWEST {
            return None;
        }
        self.taking_until = now.plus_us(PATIENCE_US);
        Some(portion)
    }

    /// The tokens that are asked for here within a lease's time, and those that will be dropped because the bucket overflows.
    fn wanted(&self, note: &BucketNote, now: Micros) -> u64 {
        let limit = self.limit.limit();
        let room = f64::from(limit.capacity()) - self.level(note, now);
        let refill = limit.rate() * self.lease_us() as f64 / 1e6;
        self.demand.tokens().saturating_add((refill - room).max(0.0) as u64)
    }

    /// The whole tokens in the store, if no other instance has spent since it was asked.
    fn level(&self, note: &BucketNote, now: Micros) -> f64 {
        note.at_least(self.limit.limit(), now).whole_tokens() as f64
    }

    /// A portion has come. Returns whether a task has to be started that returns what is left of it.
    pub(super) fn granted(&mut self, tokens: u32, note: BucketNote, now: Micros) -> bool {
        (self.taking_until, self.portion) = (now, tokens);
        self.replace_note(note);
        // Instances that share a bucket slow down and speed up together, until it stays just above nearly empty.
        let level = self.level(&note, now) + f64::from(tokens);
        let step = if level < self.scarce_level() { 1.25 } else { 0.8 };
        let longest = self.lease_us().max(2 * SHORTEST_PAUSE_US) / 2;
        self.pause_us = ((self.pause_us() as f64 * step) as u64).clamp(SHORTEST_PAUSE_US, longest);
        self.next_take = now.plus_us(self.pause_us);
        self.tokens = self.tokens.saturating_add(tokens);
        self.ends = now.plus_us(self.lease_us());
        self.drop_overflow(now);
        tokens > 0 && !std::mem::replace(&mut self.is_kept, true)
    }

    /// A portion did not come.
    pub(super) const fn failed(&mut self, now: Micros) {
        self.taking_until = now;
    }

    /// Tokens that were set aside and not spent are here again. Those of a lease that has ended since are lost.
    pub(super) fn put_back(&mut self, tokens: u32, now: Micros) {
        if now < self.ends {
            self.tokens = self.tokens.saturating_add(tokens);
        }
    }

    /// The store has told how the bucket stands.
    pub(super) fn learn(&mut self, note: BucketNote) {
        if self.note.is_none_or(|known| known.sent <= note.sent) {
            self.replace_note(note);
        }
    }

    /// What has overflowed by the old note is dropped before it is forgotten.
    fn replace_note(&mut self, note: BucketNote) {
        self.drop_overflow(note.heard);
        self.note = Some(note);
    }

    /// The bucket is full again: what is here of it is worth nothing.
    pub(super) fn forget(&mut self) {
        (self.tokens, self.note) = (0, None);
    }

    /// Takes the charge's limit in place of the one that the tokens were taken under. Returns the tokens of the old one.
    pub(super) fn change_limit(&mut self, limit: &NamedLimit, now: Micros) -> u32 {
        if self.limit.limit() == limit.limit() {
            return 0;
        }
        self.drop_overflow(now);
        let fills_like = self.limit.limit().fills_like(limit.limit());
        self.limit = limit.clone();
        if fills_like { 0 } else { std::mem::take(&mut self.tokens) }
    }

    /// Ends it if its time is over.
    pub(super) fn end(&mut self, now: Micros) -> LeaseEnd {
        if self.tokens > 0 && now < self.ends {
            return LeaseEnd::Wait(self.ends.since_us(now));
        }
        self.end_now(now)
    }

    /// Ends it before its time.
    pub(super) fn end_now(&mut self, now: Micros) -> LeaseEnd {
        self.drop_overflow(now);
        self.is_kept = false;
        LeaseEnd::Return(std::mem::take(&mut self.tokens))
    }

    fn lease_us(&self) -> u64 {
        self.limit.limit().lease().map_or(0, |lease| lease.as_micros() as u64)
    }

    const fn is_hot(&self) -> bool {
        self.demand.questions() >= HOT
    }

    /// Drops the tokens that, together with those in the store, are more than the capacity. Time would have brought no more
    /// than that to a bucket that no instance had taken from; so a burst is never larger than the capacity. A store that has
    /// lost its buckets shows full ones, and what was taken before is dropped too.
    fn drop_overflow(&mut self, now: Micros) {
        let Some(note) = self.note.filter(|_| self.tokens > 0) else { return };
        let limit = self.limit.limit();
        let room = limit.capacity_micro().get() - note.at_most(limit, now).get();
        let room = u32::try_from(room / MicroTokens::PER_TOKEN).unwrap_or(u32::MAX);
        self.tokens = self.tokens.min(room);
    }

    /// Tokens below which a bucket is nearly empty. It then gains by the time of the next portion what a portion takes, so
    /// that portions do not shrink to nothing.
    fn scarce_level(&self) -> f64 {
        let limit = self.limit.limit();
        let refill = limit.rate() * self.lease_us() as f64 / 1e6;
        refill.min(f64::from(limit.capacity()) * NEARLY_EMPTY)
    }

    /// How long a bucket that is nearly empty is left alone. At first as long as it takes to gain a portion.
    fn pause_us(&self) -> u64 {
        match self.pause_us {
            0 => (self.scarce_level() * self.share / self.limit.limit().rate() * 1e6) as u64,
            us => us,
        }
        .max(SHORTEST_PAUSE_US)
    }

    /// True if a bucket has so few tokens that they are handed out in portions only. Never for limits whose portions would
    /// then be too small to be worth a call.
    fn is_nearly_empty(&self, note: &BucketNote, now: Micros) -> bool {
        let scarce = self.scarce_level();
        scarce * self.share >= f64::from(FEWEST) && self.level(note, now) < scarce
    }

    /// The bucket with the tokens that are here.
    fn standing(&self, note: &BucketNote) -> BucketNote {
        let held = note.bucket.held().get() + MicroTokens::from_tokens(self.tokens).get();
        BucketNote { bucket: Bucket::new(MicroTokens::new(held), note.bucket.written_at()), ..*note }
    }

    /// An empty bucket that covers the cost when the next portion is due.
    fn until_next_take(&self, note: &BucketNote, cost: u32, now: Micros) -> BucketNote {
        let refill_us = (f64::from(cost) / self.limit.limit().rate() * 1e6) as u64;
        let due_us = self.next_take.since_us(now);
        let written_at = note.store_time(now).plus_us(due_us.saturating_sub(refill_us));
        BucketNote { bucket: Bucket::new(MicroTokens::default(), written_at), ..*note }
    }
}
