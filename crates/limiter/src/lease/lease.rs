//! One bucket's lease: the tokens that are paid for, and when more are taken.

use std::sync::Arc;

use spile_core::{Amount, Bucket, Charge, Cost, Micros, NamedLimit, Rate};

use super::demand::Demand;
use crate::bucket_note::BucketNote;

/// So many questions in a lease's time make a bucket hot.
const HOT: u32 = 10;
/// The least that is worth a call.
const FEWEST: Amount = Amount::from_tokens(2);
/// The shortest pause between two portions of a bucket that is nearly empty.
const SHORTEST_PAUSE_US: u64 = 1_000;
/// The longest such pause.
const LONGEST_PAUSE_US: u64 = 50_000;
/// What comes back in a longer time is not little.
const SCARCE_US: u64 = 250_000;
/// How many portions are told apart.
const MOST_LOTS: usize = 2;
/// How long a portion may be under way before another one is asked for.
const PATIENCE_US: u64 = 1_000_000;
/// A bucket that has less than this part of its capacity is nearly empty.
const NEARLY_EMPTY: f64 = 0.06;

/// Tokens of one bucket that this instance has taken from the store and not spent yet. Has no `Debug`, because keys are not to
/// be shown.
pub(super) struct Lease {
    pub(super) key: Arc<str>,
    pub(super) limit: NamedLimit,
    /// The oldest first, at most [`MOST_LOTS`].
    lots: Vec<Lot>,
    /// The version of the limits in which a question last named this limit.
    confirmed: u32,
    /// Incremented when tokens set aside become void.
    generation: u32,
    /// Incremented when a portion in flight becomes void.
    resets: u32,
    /// When the tokens go back.
    ends: Micros,
    /// True while a task waits for that.
    is_kept: bool,
    /// The bucket in the store as it was last told.
    note: Option<BucketNote>,
    demand: Demand,
    /// How much the last portion was.
    portion: Amount,
    /// A portion is under way until then.
    taking_until: Micros,
    /// A bucket that is nearly empty is not asked for a portion before this.
    next_take: Micros,
    /// How long it is left alone then. Zero until the first portion.
    pause_us: u64,
    /// The most that may be here, of what the bucket has left.
    share: f64,
    /// The longest that a question waits for the store.
    waits_us: u64,
}

/// What is left of a portion.
#[derive(Clone, Copy, Debug)]
struct Lot {
    amount: Amount,
    /// The bucket as it was when the portion had been taken, or as it was told later if it was fuller than can be since.
    bucket: BucketNote,
    /// When the portion came.
    came: Micros,
}

/// Tokens of a lease that are set aside for a question to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetAside {
    /// All of them, as old as the oldest.
    lot: Option<Lot>,
    generation: u32,
}

impl SetAside {
    pub(crate) fn amount(&self) -> Amount {
        self.lot.map_or(Amount::ZERO, |lot| lot.amount)
    }
}

/// What a lease does with a charge.
#[derive(Debug)]
pub(crate) enum LeaseAnswer {
    /// It covers the charge by these tokens. The bucket afterwards, with the tokens that are here.
    Covers(BucketNote, SetAside),
    /// It denies the charge: the bucket is nearly empty, and the next portion is not due.
    Denies(BucketNote),
    /// The store has to be asked for the cost less these tokens.
    Asks(SetAside),
}

/// What is to be done for a lease whose time may be over.
#[derive(Debug)]
pub(super) enum LeaseEnd {
    /// Nothing for so many microseconds.
    Wait(u64),
    /// These tokens go back to the store.
    Return(Amount),
}

impl Lease {
    pub(super) fn new(charge: &Charge<'_>, share: f64, waits_us: u64) -> Self {
        Self {
            key: charge.key().as_str().into(),
            limit: charge.limit().clone(),
            lots: Vec::new(),
            confirmed: 0,
            generation: 0,
            resets: 0,
            ends: Micros::default(),
            is_kept: false,
            note: None,
            demand: Demand::default(),
            portion: Amount::ZERO,
            taking_until: Micros::default(),
            next_take: Micros::default(),
            pause_us: 0,
            share,
            waits_us,
        }
    }

    pub(super) fn is_of(&self, charge: &Charge<'_>) -> bool {
        self.limit.tag() == charge.limit().tag() && *self.key == *charge.key().as_str()
    }

    /// The tokens that are here.
    pub(super) fn amount(&self) -> Amount {
        self.lots.iter().map(|lot| lot.amount).sum()
    }

    /// How often the bucket was reset.
    pub(super) const fn resets(&self) -> u32 {
        self.resets
    }

    /// True if forgetting it loses nothing.
    pub(super) fn is_idle(&self, now: Micros) -> bool {
        self.lots.is_empty() && !self.is_kept && !self.demand.is_recent(now, self.lease_us())
    }

    /// Spends from it, as far as it goes, and says how many tokens are to be taken from the store meanwhile. A denial is only
    /// given to a charge that is alone in its chain: of the others the store has to be asked anyway.
    pub(super) fn spend(&mut self, cost: Cost, is_alone: bool, now: Micros) -> (LeaseAnswer, Option<Amount>) {
        self.demand.add(cost.amount(), now, self.lease_us());
        self.drop_overflow(now);
        // What waits for the store must still have room in the bucket when the answer comes.
        let refill = (self.per_second() * self.waits_us as f64).ceil() as u64;
        let more = if is_alone { 0 } else { refill };
        if let Some(note) = self.note.filter(|note| self.covers(cost, note, more, now)) {
            let aside = self.set_aside(cost.amount(), more, now);
            return (LeaseAnswer::Covers(self.standing(&note), aside), self.portion(now));
        }
        let is_due = !self.is_ahead(self.next_take, now);
        let portion = self.portion(now);
        if let Some(note) = self.note.filter(|note| is_alone && self.is_handed_out(note, now))
            && (!is_due || portion.is_some_and(|portion| self.limit.limit().is_covered(cost, portion)))
        {
            return (LeaseAnswer::Denies(self.until_next_take(&note, cost, now)), portion);
        }
        (LeaseAnswer::Asks(self.set_aside(cost.amount(), refill, now)), portion)
    }

    /// True if the usable tokens cover the cost, and so does the bucket as a whole: late charges may have taken it into debt since the
    /// tokens were leased.
    fn covers(&self, cost: Cost, note: &BucketNote, more: u64, now: Micros) -> bool {
        let limit = self.limit.limit();
        limit.is_covered(cost, self.usable(more, now))
            && limit.is_covered(cost, self.standing(note).at_least(limit, now))
    }

    /// True if a hot bucket is handed out in portions only. One in debt is not: the store reports how long that takes to repay.
    fn is_handed_out(&self, note: &BucketNote, now: Micros) -> bool {
        let is_in_debt = || note.at_least(self.limit.limit(), now) < Amount::ZERO;
        self.is_hot() && self.is_nearly_empty(note, now) && !is_in_debt()
    }

    /// The tokens that may be spent, also if the bucket gets so many micro-tokens more until then.
    fn usable(&self, more: u64, now: Micros) -> Amount {
        self.lots.iter().map(|lot| self.usable_of(lot, more, now)).sum()
    }

    /// Tokens of a portion that was taken longer ago than a lease's time only go back.
    fn usable_of(&self, lot: &Lot, more: u64, now: Micros) -> Amount {
        if self.is_live(lot, now) { lot.amount.min(self.room(&lot.bucket, more, now)) } else { Amount::ZERO }
    }

    fn is_live(&self, lot: &Lot, now: Micros) -> bool {
        self.is_ahead(lot.came.plus_us(self.lease_us()), now)
    }

    /// True if a moment is ahead, and not further than it can be: a clock that has been stepped back must not keep it there.
    fn is_ahead(&self, moment: Micros, now: Micros) -> bool {
        now < moment && moment.since_us(now) <= self.lease_us().max(PATIENCE_US)
    }

    /// Takes up to so many tokens out that are usable, the oldest first.
    fn set_aside(&mut self, amount: Amount, more: u64, now: Micros) -> SetAside {
        let mut lots = std::mem::take(&mut self.lots);
        let (mut missing, mut oldest) = (amount, None);
        for lot in &mut lots {
            let some = self.usable_of(lot, more, now).min(missing);
            lot.amount = lot.amount - some;
            missing = missing - some;
            oldest = oldest.or((some > Amount::ZERO).then_some(*lot));
        }
        lots.retain(|lot| lot.amount > Amount::ZERO);
        self.lots = lots;
        let lot = oldest.map(|lot| Lot { amount: amount - missing, ..lot });
        SetAside { lot, generation: self.generation }
    }

    /// How many tokens are to be taken from the store now.
    fn portion(&mut self, now: Micros) -> Option<Amount> {
        let note = self.note?;
        if self.usable(0, now) > Amount::from_micro(self.portion.micro() / 4)
            || self.is_ahead(self.taking_until, now)
            || !self.is_hot()
        {
            return None;
        }
        if self.is_nearly_empty(&note, now) {
            if self.is_ahead(self.next_take, now) {
                return None;
            }
            self.next_take = now.plus_us(self.pause_us());
        }
        let most = self.wanted(&note, now).min(self.level(&note, now) * self.share);
        let portion = Amount::from(most as u64).above(self.usable(0, now));
        if portion < FEWEST {
            return None;
        }
        self.taking_until = now.plus_us(PATIENCE_US);
        Some(portion)
    }

    /// The tokens that are asked for here until the portion is used up, and those that are dropped until then because the bucket
    /// overflows.
    ///
    /// Of a bucket that is full, less is taken at once: if others drain it, what is dropped here was not to be dropped.
    fn wanted(&self, note: &BucketNote, now: Micros) -> f64 {
        let (limit, lease) = (self.limit.limit(), self.lease_us() as f64 / 1e6);
        let room = limit.capacity().as_f64() - self.level(note, now);
        let (demand, rate) = (self.demand.amount().as_f64() / lease, self.per_second());
        // For so long the bucket cannot overflow by what is asked for less than comes back.
        let without_loss = room / (rate - demand).max(f64::MIN_POSITIVE);
        let time = without_loss.clamp(lease / 4.0, lease);
        demand * time + (rate * lease / 4.0 - room).max(0.0)
    }

    /// The whole tokens in the store, if no other instance has spent since it was asked.
    fn level(&self, note: &BucketNote, now: Micros) -> f64 {
        note.at_least(self.limit.limit(), now).whole_tokens() as f64
    }

    /// A portion has come that was asked for after so many resets. Returns whether a task has to be started that returns what
    /// is left of it.
    pub(super) fn granted(&mut self, amount: Amount, resets: u32, taken: BucketNote, now: Micros) -> bool {
        self.taking_until = now;
        if resets != self.resets {
            return false;
        }
        self.portion = amount;
        self.replace_note(taken);
        // Instances that share a bucket slow down and speed up together, until it stays just above nearly empty.
        let level = self.level(&taken, now) + amount.as_f64();
        let step = if level < self.scarce_level() { 1.25 } else { 0.8 };
        let pause_us = (self.pause_us() as f64 * step) as u64;
        self.pause_us = pause_us.clamp(SHORTEST_PAUSE_US, LONGEST_PAUSE_US);
        self.next_take = now.plus_us(self.pause_us);
        self.ends = now.plus_us(self.lease_us());
        if amount == Amount::ZERO {
            return false;
        }
        self.lots.push(Lot { amount, bucket: taken, came: now });
        self.merge_lots();
        self.drop_overflow(now);
        !std::mem::replace(&mut self.is_kept, true)
    }

    /// A portion did not come.
    pub(super) const fn failed(&mut self, now: Micros) {
        self.taking_until = now;
    }

    /// Tokens that were set aside and not spent are here again. Those of a lease that has ended since are lost.
    pub(super) fn put_back(&mut self, aside: &SetAside) {
        if let Some(lot) = aside.lot.filter(|_| aside.generation == self.generation) {
            self.lots.insert(0, lot);
            self.merge_lots();
        }
    }

    /// The store has told how the bucket stands.
    pub(super) fn learn(&mut self, note: BucketNote) {
        if self.note.is_none_or(|known| known.sent <= note.sent) {
            self.replace_note(note);
        }
    }

    /// A bucket that is fuller than it can have become by time was reset, refunded or lost. Then there is less room for what is
    /// here. One that is emptier leaves no more room: others have taken from it, and have room too.
    fn replace_note(&mut self, note: BucketNote) {
        self.note = Some(note);
        let (limit, now) = (*self.limit.limit(), note.heard);
        for lot in &mut self.lots {
            if note.at_most(&limit, now) > lot.bucket.at_most(&limit, now) {
                lot.bucket = note;
            }
        }
    }

    /// Drops the tokens that are here, set aside or in flight: the bucket was reset, or its limit has changed.
    pub(super) fn forget(&mut self) {
        self.lots.clear();
        (self.note, self.ends) = (None, Micros::default());
        self.generation = self.generation.wrapping_add(1);
        self.resets = self.resets.wrapping_add(1);
    }

    /// Notes that a question named this limit in this version of the limits. Tokens of another limit are dropped: other instances
    /// may have drained the bucket under the new limit, and what was taken under the old one must not fill it again.
    pub(super) fn confirm(&mut self, limit: &NamedLimit, version: u32) {
        self.confirmed = version;
        if self.limit.limit() == limit.limit() {
            return;
        }
        if !self.limit.limit().fills_like(limit.limit()) {
            self.forget();
            // Limits that take turns would drop one portion after the other, so the bucket has to become hot again.
            self.demand = Demand::default();
            (self.portion, self.pause_us) = (Amount::ZERO, 0);
            (self.taking_until, self.next_take) = (Micros::default(), Micros::default());
        }
        self.limit = limit.clone();
    }

    /// True if a question has named the limit of the tokens in this version of the limits.
    pub(super) const fn is_confirmed(&self, version: u32) -> bool {
        self.confirmed == version
    }

    /// Ends it if its time is over.
    pub(super) fn end(&mut self, now: Micros) -> LeaseEnd {
        if self.is_ahead(self.ends, now) {
            return LeaseEnd::Wait(self.ends.since_us(now));
        }
        self.end_now(now)
    }

    /// Ends it before its time.
    pub(super) fn end_now(&mut self, now: Micros) -> LeaseEnd {
        self.is_kept = false;
        LeaseEnd::Return(self.take_returnable(now))
    }

    /// Takes everything out, and returns what may go back to the bucket.
    fn take_returnable(&mut self, now: Micros) -> Amount {
        self.generation = self.generation.wrapping_add(1);
        let lots = std::mem::take(&mut self.lots);
        lots.iter().map(|lot| self.returnable(lot, now)).sum()
    }

    /// The same for portions that were taken longer ago than a lease's time.
    pub(super) fn take_ended(&mut self, now: Micros) -> Amount {
        if self.lots.iter().all(|lot| self.is_live(lot, now)) {
            return Amount::ZERO;
        }
        let (live, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.lots).into_iter().partition(|lot| self.is_live(lot, now));
        self.lots = live;
        ended.iter().map(|lot| self.returnable(lot, now)).sum()
    }

    /// The tokens of a lot that may go back. Other instances have taken some since, and do not hear of it: only so much goes
    /// back that the bucket is not full before their leases have ended.
    fn returnable(&self, lot: &Lot, now: Micros) -> Amount {
        let refill = (self.per_second() * self.lease_us() as f64).ceil() as u64;
        lot.amount.min(self.room(&lot.bucket, refill, now))
    }

    fn lease_us(&self) -> u64 {
        self.limit.limit().lease().map_or(0, |lease| lease.as_micros() as u64)
    }

    /// The refill. Only rates have leases.
    fn per_second(&self) -> f64 {
        self.limit.limit().rate().map_or(0.0, Rate::per_second)
    }

    const fn is_hot(&self) -> bool {
        self.demand.questions() >= HOT
    }

    /// Drops the tokens that, together with those in the store, are more than the capacity. Time would have brought no more
    /// than that to a bucket that no instance had taken from; so a burst is never larger than the capacity. A store that has
    /// lost its buckets shows full ones, and what is taken from those has room only for itself.
    ///
    /// Each lot is held against the bucket as it was when that lot had been taken. What others took since is then counted as
    /// still in the bucket, so that all lots of all instances have room together.
    fn drop_overflow(&mut self, now: Micros) {
        if self.lots.is_empty() {
            return;
        }
        let mut lots = std::mem::take(&mut self.lots);
        for lot in &mut lots {
            lot.amount = lot.amount.min(self.room(&lot.bucket, 0, now));
        }
        lots.retain(|lot| lot.amount > Amount::ZERO);
        self.lots = lots;
    }

    /// The free part of the bucket, in quanta, assuming that it is as full as it can be now plus `more` micro-tokens.
    fn room(&self, taken: &BucketNote, more: u64, now: Micros) -> Amount {
        let limit = self.limit.limit();
        let highest = Amount::from_micro(taken.at_most(limit, now).micro().saturating_add_unsigned(more));
        limit.capacity().above(highest).floored_to(limit.quantum())
    }

    /// Keeps few lots. Two become one that is held against the older bucket, which leaves less room.
    fn merge_lots(&mut self) {
        while self.lots.len() > MOST_LOTS {
            let newer = self.lots.remove(1);
            self.lots[0].amount = self.lots[0].amount + newer.amount;
        }
    }

    /// Tokens below which a bucket is nearly empty. It then gains by the time of the next portion what a portion takes, so
    /// that portions do not shrink to nothing.
    fn scarce_level(&self) -> f64 {
        let limit = self.limit.limit();
        let refill = self.per_second() * self.lease_us().min(SCARCE_US) as f64 / 1e6;
        refill.min(limit.capacity().as_f64() * NEARLY_EMPTY)
    }

    /// How long a bucket that is nearly empty is left alone. At first as long as it takes to gain a portion.
    fn pause_us(&self) -> u64 {
        match self.pause_us {
            0 => (self.scarce_level() * self.share / self.per_second() * 1e6) as u64,
            us => us,
        }
        .max(SHORTEST_PAUSE_US)
    }

    /// True if a bucket has so few tokens that they are handed out in portions only. Never for limits whose portions would
    /// then be too small to be worth a call.
    fn is_nearly_empty(&self, note: &BucketNote, now: Micros) -> bool {
        let scarce = self.scarce_level();
        scarce * self.share >= FEWEST.as_f64() && self.level(note, now) < scarce
    }

    /// The bucket with the tokens that are here.
    fn standing(&self, note: &BucketNote) -> BucketNote {
        BucketNote { bucket: note.bucket.with_more(self.limit.limit(), self.amount()), ..*note }
    }

    /// An empty bucket that covers the cost when the next portion is due.
    fn until_next_take(&self, note: &BucketNote, cost: Cost, now: Micros) -> BucketNote {
        let refill_us = (self.limit.limit().asked(cost).as_f64() / self.per_second() * 1e6) as u64;
        let due_us = self.next_take.since_us(now);
        let written_at = note.store_time(now).plus_us(due_us.saturating_sub(refill_us));
        BucketNote { bucket: Bucket::new(Amount::ZERO, written_at), ..*note }
    }
}
