//! One bucket's lease: lots of tokens that are paid for, and when the next portion is taken.

use std::sync::Arc;

use spile_core::{Amount, Bucket, Charge, Cost, Limit, Micros, NamedLimit, Rate};

use super::Portion;
use super::demand::Demand;
use super::pace::PortionPace;
use crate::bucket_note::BucketNote;

/// A bucket that gets at least this many questions within one lease is hot.
const HOT: u32 = 10;
/// The smallest portion that is worth a call.
const FEWEST: Amount = Amount::from_tokens(2);
/// How long a portion may be in flight before another one is asked for.
const PATIENCE_US: u64 = 1_000_000;
/// A bucket below this part of its capacity can be nearly empty.
const NEARLY_EMPTY: f64 = 0.06;
/// Cap on the refill time that defines [`scarce_level`](Lease::scarce_level).
const SCARCE_US: u64 = 250_000;

/// The bounds of all leases of a limiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The largest share of the bucket's remaining tokens that this instance may hold.
    pub(super) share: f64,
    /// The longest that a question waits for the store.
    pub(super) waits_us: u64,
}

/// Tokens of one bucket that this instance has taken from the store and not spent yet. Has no `Debug`, because keys are not to
/// be shown.
pub(super) struct Lease {
    pub(super) key: Arc<str>,
    /// The limit of the last question.
    pub(super) limit: NamedLimit,
    /// The oldest first.
    lots: Vec<Lot>,
    /// The version of the limits in which a question last named this limit.
    pub(super) confirmed: u32,
    /// Incremented when all tokens become void: the bucket was reset, or its limit has changed.
    epoch: u32,
    /// True while a task waits for lots to end.
    is_kept: bool,
    /// The latest answer of the store about the bucket.
    note: Option<BucketNote>,
    demand: Demand,
    /// The amount of the last portion.
    portion: Amount,
    /// A portion is in flight until then.
    pub(super) taking_until: Micros,
    pub(super) pace: PortionPace,
    terms: Terms,
}

/// The rest of one grant of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    pub(super) amount: Amount,
    /// The limit that it was taken under.
    pub(super) limit: Limit,
    /// The epoch in which it was asked for.
    epoch: u32,
    /// The bucket after the grant, or a later answer that shows it fuller than time can have made it.
    bucket: BucketNote,
    came: Micros,
}

/// Tokens of a lease that are set aside for a question to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetAside {
    /// All of them, as old as the oldest.
    lot: Option<Lot>,
}

impl SetAside {
    pub(crate) fn amount(&self) -> Amount {
        self.lot.map_or(Amount::ZERO, |lot| lot.amount)
    }
}

/// How a lease is asked for a charge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LeaseQuestion {
    /// As one of several. The store may have to be asked about the others, so it is neither denied nor waits for a portion.
    InChain,
    /// As the only charge.
    Alone,
    /// As the only charge, once the portion that it waited for has come.
    AfterPortion,
}

/// The answer of a lease to a charge.
#[derive(Debug)]
pub(crate) enum LeaseAnswer {
    /// These tokens cover the charge. The bucket afterwards, with the tokens of the lease.
    Covers(BucketNote, SetAside),
    /// The bucket is nearly empty, and the next portion is not due.
    Denies(BucketNote),
    /// The bucket is nearly empty, and the next portion is due: the question waits for it.
    Waits,
    /// The store has to be asked for the cost less these tokens.
    Asks(SetAside),
}

impl Lease {
    pub(super) fn new(charge: &Charge<'_>, terms: Terms) -> Self {
        Self {
            key: charge.key().as_str().into(),
            limit: charge.limit().clone(),
            lots: Vec::new(),
            confirmed: 0,
            epoch: 0,
            is_kept: false,
            note: None,
            demand: Demand::default(),
            portion: Amount::ZERO,
            taking_until: Micros::default(),
            pace: PortionPace::default(),
            terms,
        }
    }

    pub(super) fn is_of(&self, charge: &Charge<'_>) -> bool {
        self.limit.tag() == charge.limit().tag() && *self.key == *charge.key().as_str()
    }

    /// The amount of all lots.
    pub(super) fn amount(&self) -> Amount {
        self.lots.iter().map(|lot| lot.amount).sum()
    }

    /// True if forgetting it loses nothing.
    pub(super) fn is_idle(&self, now: Micros) -> bool {
        self.lots.is_empty() && !self.is_kept && !self.demand.is_recent(now, self.lease_us())
    }

    /// Spends a charge as far as the lease covers it.
    pub(super) fn spend(&mut self, cost: Cost, asked: LeaseQuestion, now: Micros) -> LeaseAnswer {
        if asked != LeaseQuestion::AfterPortion {
            self.demand.add(cost.amount(), now, self.lease_us());
        }
        self.drop_overflow(now);
        // Tokens that wait for the store must still have room in the bucket when the answer comes.
        let refill = self.refill_in(self.terms.waits_us);
        let more = if asked == LeaseQuestion::InChain { refill } else { Amount::ZERO };
        if let Some(note) = self.note.filter(|note| self.covers(cost, note, more, now)) {
            let aside = self.set_aside(cost.amount(), more, now);
            return LeaseAnswer::Covers(self.with_lots(&note), aside);
        }
        let paced = if asked == LeaseQuestion::Alone { self.pace(cost, now) } else { None };
        if let Some(LeaseAnswer::Denies(note)) = &paced {
            let limit = self.limit.limit();
            let wait_us = note.bucket.wait_for_us(limit, limit.asked(cost), note.store_time(now));
            self.pace.promise(now.plus_us(wait_us), now);
        }
        paced.unwrap_or_else(|| LeaseAnswer::Asks(self.set_aside(cost.amount(), refill, now)))
    }

    /// The answer to a charge that the lots do not cover, while a hot bucket is nearly empty. Not while it is in debt: the store
    /// reports how long that takes to repay.
    fn pace(&self, cost: Cost, now: Micros) -> Option<LeaseAnswer> {
        let note = self.note.filter(|note| note.age_us(now) <= PortionPace::OLDEST_US)?;
        let is_in_debt = note.at_least(self.limit.limit(), now) < Amount::ZERO;
        if !self.is_hot() || !self.is_nearly_empty(&note, now) || is_in_debt {
            return None;
        }
        if self.is_ahead(self.pace.next, now) {
            return Some(LeaseAnswer::Denies(self.until_next_portion(&note, cost, now)));
        }
        let covers = |portion: Amount| self.limit.limit().is_covered(cost, portion);
        self.portion(now).filter(|portion| covers(*portion)).map(|_| LeaseAnswer::Waits)
    }

    /// True if the usable tokens cover the cost, and so does the bucket as a whole: late charges may have taken it into debt since the
    /// tokens were leased.
    fn covers(&self, cost: Cost, note: &BucketNote, more: Amount, now: Micros) -> bool {
        let limit = self.limit.limit();
        limit.is_covered(cost, self.usable(more, now))
            && limit.is_covered(cost, self.with_lots(note).at_least(limit, now))
    }

    /// The amount that may be spent, also if the bucket gains `more` until then.
    fn usable(&self, more: Amount, now: Micros) -> Amount {
        self.lots.iter().map(|lot| self.usable_of(lot, more, now)).sum()
    }

    fn usable_of(&self, lot: &Lot, more: Amount, now: Micros) -> Amount {
        let is_live = self.is_ahead(self.end_of(lot), now);
        if is_live { lot.amount.min(lot.room(more, now)) } else { Amount::ZERO }
    }

    /// When the rest of a lot goes back to the store.
    fn end_of(&self, lot: &Lot) -> Micros {
        lot.came.plus_us(self.lease_us())
    }

    /// True if a moment is ahead, and not further than it can be: a clock that has been stepped back must not keep it there.
    fn is_ahead(&self, moment: Micros, now: Micros) -> bool {
        now < moment && moment.since_us(now) <= self.lease_us().max(PATIENCE_US)
    }

    /// Takes up to `amount` out of the lots, the oldest first.
    fn set_aside(&mut self, amount: Amount, more: Amount, now: Micros) -> SetAside {
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
        SetAside { lot: oldest.map(|lot| Lot { amount: amount - missing, ..lot }) }
    }

    /// Puts tokens back that were set aside and not spent. Returns whether a task has to be started that returns them to the store.
    pub(super) fn put_back(&mut self, aside: &SetAside) -> bool {
        aside.lot.is_some_and(|lot| self.put(0, lot))
    }

    /// Adds a lot, unless it is void. Returns whether a task has to be started that returns it to the store.
    fn put(&mut self, at: usize, lot: Lot) -> bool {
        if lot.amount == Amount::ZERO || lot.epoch != self.epoch {
            return false;
        }
        self.lots.insert(at, lot);
        !std::mem::replace(&mut self.is_kept, true)
    }

    /// The portion to take from the store now. `None` if the lease has enough, one is in flight, or it is not due or not worth a call.
    fn portion(&self, now: Micros) -> Option<Amount> {
        let note = self.note?;
        let usable = self.usable(Amount::ZERO, now);
        if usable > Amount::from_micro(self.portion.micro() / 4)
            || self.is_ahead(self.taking_until, now)
            || !self.is_hot()
            || self.is_nearly_empty(&note, now) && self.is_ahead(self.pace.next, now)
        {
            return None;
        }
        let most = self.wanted(&note, now).min(self.level(&note, now) * self.terms.share);
        Some(Amount::from(most as u64).above(usable)).filter(|portion| *portion >= FEWEST)
    }

    /// Notes that a portion is asked for, if one is due.
    pub(super) fn start_portion(&mut self, now: Micros) -> Option<Portion> {
        let amount = self.portion(now)?;
        if self.note.is_some_and(|note| self.is_nearly_empty(&note, now)) {
            self.pace.started(self.first_pause_us(), now);
        }
        self.taking_until = now.plus_us(PATIENCE_US);
        Some(self.portion_of(self.limit.clone(), amount))
    }

    /// Tokens of the bucket under this limit.
    pub(super) fn portion_of(&self, limit: NamedLimit, amount: Amount) -> Portion {
        Portion { key: Arc::clone(&self.key), limit, amount, epoch: self.epoch }
    }

    /// The tokens that are asked for here until the portion is used up, and those that are dropped until then because the bucket
    /// overflows.
    ///
    /// Less is taken from a full bucket: tokens dropped here as overflow might still have been usable elsewhere.
    fn wanted(&self, note: &BucketNote, now: Micros) -> f64 {
        let (limit, lease) = (self.limit.limit(), self.lease_us() as f64 / 1e6);
        let room = limit.capacity().as_f64() - self.level(note, now);
        let (demand, rate) = (self.demand.amount().as_f64() / lease, self.per_second());
        // How long the bucket can absorb the refill that exceeds demand.
        let without_loss = room / (rate - demand).max(f64::MIN_POSITIVE);
        let time = without_loss.clamp(lease / 4.0, lease);
        demand * time + (rate * lease / 4.0 - room).max(0.0)
    }

    /// The whole tokens in the store, if no other instance has spent since it was asked.
    fn level(&self, note: &BucketNote, now: Micros) -> f64 {
        note.at_least(self.limit.limit(), now).whole_tokens() as f64
    }

    /// Adds a grant that was asked for under this limit in this epoch. Returns whether a task has to be started that returns the rest
    /// of it.
    pub(super) fn granted(&mut self, amount: Amount, limit: Limit, epoch: u32, bucket: BucketNote) -> bool {
        let now = bucket.heard;
        self.taking_until = now;
        if epoch != self.epoch {
            return false;
        }
        self.portion = amount;
        self.learn(bucket);
        let is_scarce = self.level(&bucket, now) + amount.as_f64() < self.scarce_level();
        self.pace.granted(self.first_pause_us(), is_scarce, now);
        self.put(self.lots.len(), Lot { amount, limit, epoch, bucket, came: now })
    }

    /// Notes what the store answered about the bucket.
    ///
    /// A bucket that is fuller than time can have made it was reset, refunded or lost, which leaves less room for the lots that were
    /// granted before. One that is emptier leaves no more room: others have taken from it, and need room as well.
    pub(super) fn learn(&mut self, note: BucketNote) {
        if self.note.is_none_or(|known| !known.is_later_than(&note)) {
            self.note = Some(note);
        }
        for lot in self.lots.iter_mut().filter(|lot| note.is_later_than(&lot.bucket)) {
            if note.at_most(&lot.limit, note.heard) > lot.bucket.at_most(&lot.limit, note.heard) {
                lot.bucket = note;
            }
        }
    }

    /// Drops all tokens, also those set aside or in flight: the bucket was reset, or its limit has changed.
    pub(super) fn forget(&mut self) {
        self.lots.clear();
        self.note = None;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Notes that a question named this limit in this version of the limits. Tokens of a limit that fills in another way are dropped:
    /// other instances may have drained the bucket under the new limit, and tokens taken under the old one must not fill it again.
    pub(super) fn confirm(&mut self, limit: &NamedLimit, version: u32) {
        self.confirmed = version;
        if self.limit.limit() == limit.limit() {
            return;
        }
        if !self.limit.limit().fills_like(limit.limit()) {
            self.forget();
            // Limits that take turns would drop one portion after the other, so the bucket has to become hot again.
            (self.demand, self.pace) = (Demand::default(), PortionPace::default());
            (self.portion, self.taking_until) = (Amount::ZERO, Micros::default());
        }
        self.limit = limit.clone();
    }

    /// Takes out the lots whose time is over, or all of them, and returns those of their tokens that may go back to the store.
    pub(super) fn take_ended(&mut self, all: bool, now: Micros) -> Vec<Lot> {
        let lots = std::mem::take(&mut self.lots);
        let (live, ended): (Vec<_>, Vec<_>) =
            lots.into_iter().partition(|lot| !all && self.is_ahead(self.end_of(lot), now));
        self.lots = live;
        let returnable = |lot: Lot| Lot { amount: self.returnable(&lot, now), ..lot };
        ended.into_iter().map(returnable).filter(|lot| lot.amount > Amount::ZERO).collect()
    }

    /// How long it takes until the next lot ends. `None` if there is no lot, and then the task that waits for that ends.
    pub(super) fn next_end_us(&mut self, now: Micros) -> Option<u64> {
        let next = self.lots.iter().map(|lot| self.end_of(lot).since_us(now)).min();
        self.is_kept = next.is_some();
        next
    }

    /// The tokens of a lot that may go back. Other instances have taken some since, which is not known here: the bucket must
    /// not become full before their leases have ended.
    fn returnable(&self, lot: &Lot, now: Micros) -> Amount {
        lot.amount.min(lot.room(self.refill_in(self.lease_us()), now))
    }

    fn lease_us(&self) -> u64 {
        self.limit.limit().lease().map_or(0, |lease| lease.as_micros() as u64)
    }

    /// The refill. Only rates have leases.
    fn per_second(&self) -> f64 {
        self.limit.limit().rate().map_or(0.0, Rate::per_second)
    }

    /// The refill of this time, rounded up.
    fn refill_in(&self, us: u64) -> Amount {
        Amount::from_micro((self.per_second() * us as f64).ceil() as i64)
    }

    const fn is_hot(&self) -> bool {
        self.demand.questions() >= HOT
    }

    /// Drops the tokens that, together with those in the store, are more than the capacity. Time would have brought no more than that
    /// to a bucket that no instance had taken from, so a burst is never larger than the capacity. A store that has lost its buckets
    /// shows full ones, and tokens taken from those have room only for themselves.
    ///
    /// Each lot is held against the bucket as it was after the grant. Tokens that others took since then count as still in the
    /// bucket, so that all lots of all instances have room together.
    fn drop_overflow(&mut self, now: Micros) {
        for lot in &mut self.lots {
            lot.amount = lot.amount.min(lot.room(Amount::ZERO, now));
        }
        self.lots.retain(|lot| lot.amount > Amount::ZERO);
    }

    /// Tokens below which a bucket is nearly empty. It then gains by the time of the next portion what a portion takes, so that
    /// portions do not shrink to nothing.
    fn scarce_level(&self) -> f64 {
        let limit = self.limit.limit();
        let refill = self.per_second() * self.lease_us().min(SCARCE_US) as f64 / 1e6;
        refill.min(limit.capacity().as_f64() * NEARLY_EMPTY)
    }

    /// How long a bucket at the scarce level takes to gain a portion.
    fn first_pause_us(&self) -> u64 {
        (self.scarce_level() * self.terms.share / self.per_second() * 1e6) as u64
    }

    /// True if the bucket has so few tokens that they are handed out in portions only. Never for limits whose portions would then be
    /// too small to be worth a call.
    fn is_nearly_empty(&self, note: &BucketNote, now: Micros) -> bool {
        let scarce = self.scarce_level();
        scarce * self.terms.share >= FEWEST.as_f64() && self.level(note, now) < scarce
    }

    /// The bucket with the tokens of the lots.
    fn with_lots(&self, note: &BucketNote) -> BucketNote {
        BucketNote { bucket: note.bucket.with_more(self.limit.limit(), self.amount()), ..*note }
    }

    /// A bucket that covers the cost when the next portion is due, or later if it cannot have gained enough by then.
    fn until_next_portion(&self, note: &BucketNote, cost: Cost, now: Micros) -> BucketNote {
        let limit = self.limit.limit();
        let (asked, at) = (limit.asked(cost), note.store_time(now));
        let wait_us = self.pace.next.since_us(now).max(note.bucket.wait_for_us(limit, asked, at));
        let refill_us = (asked.as_f64() / self.per_second() * 1e6) as u64;
        let written_at = at.plus_us(wait_us.saturating_sub(refill_us));
        BucketNote { bucket: Bucket::new(Amount::ZERO, written_at), ..*note }
    }
}

impl Lot {
    /// The free part of the bucket, assuming that it is as full as it can be now plus `more`.
    fn room(&self, more: Amount, now: Micros) -> Amount {
        self.limit.capacity().above(self.bucket.at_most(&self.limit, now) + more)
    }
}
