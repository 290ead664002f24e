//! The bucket: two integers and the arithmetic that both this crate and `spend.lua` do, in the same order on
//! the same doubles, so that they agree bit for bit.

mod permits;
mod step;

pub use self::permits::{PermitSet, permit};
pub use self::step::{BucketSlot, acquire, charge, peek, refund, refund_once, settle, spend, spend_up_to};
use crate::{Cost, Limit, MicroTokens, Micros, QuotaWindows};

/// How far ahead of the clock a bucket's last write may lie before it is rebased to now. Less is jitter that
/// the clock will catch up with; more would lock the caller out.
const REBASE_AFTER_US: u64 = 1_000_000;

/// When a caller should ask again for a permit. It cannot be known when one is released.
const ASK_AGAIN_US: u64 = 1_000_000;

/// Stands in a bucket for a quota of which nothing has been used; what has been used is below it. What has been used must not
/// change with the limit: a caller that moves to a larger plan within a month gets the larger quota, less what it has used.
const UNUSED: i64 = -4_000_000_000_000_000;

/// What one key has left under one limit, as of the moment it was last written: what it holds, below zero if it owes tokens; or
/// under a quota, what it has used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bucket {
    held: MicroTokens,
    written_at: Micros,
}

impl Bucket {
    /// What [`held`](Self::held) can be.
    pub const POSSIBLE: std::ops::RangeInclusive<i64> = 3 * UNUSED / 2..=-UNUSED / 4;

    /// A bucket as a store kept it.
    pub const fn new(held: MicroTokens, written_at: Micros) -> Self {
        Self { held, written_at }
    }

    /// The bucket of a key that has not been seen yet.
    pub const fn full(limit: &Limit, now: Micros) -> Self {
        Self::holding(limit, limit.capacity_micro(), now)
    }

    /// A bucket that holds so much under a limit.
    #[inline]
    pub const fn holding(limit: &Limit, there: MicroTokens, now: Micros) -> Self {
        let held = match limit.windows() {
            None => there,
            Some(_) => MicroTokens::new(UNUSED - (limit.capacity_micro().get() - there.get())),
        };
        Self { held, written_at: now }
    }

    /// The places that are free under a concurrency while so many permits are held.
    pub const fn places(limit: &Limit, held: u32, now: Micros) -> Self {
        Self { held: MicroTokens::from_tokens(limit.capacity().saturating_sub(held)), written_at: now }
    }

    /// Micro-tokens held when last written, in the form that a store keeps: four milliards of tokens below zero is a quota of
    /// which nothing has been used, and what has been used is below that.
    pub const fn held(self) -> MicroTokens {
        self.held
    }

    /// Micro-tokens that have been used of a quota. `None` if the bucket was written under a rate.
    const fn used(self) -> Option<i64> {
        let used = UNUSED - self.held.get();
        if used >= 0 { Some(used) } else { None }
    }

    /// What it held when last written, under a limit of so many micro-tokens.
    pub const fn held_of(self, capacity: MicroTokens) -> MicroTokens {
        match self.used() {
            Some(used) => MicroTokens::new(capacity.get() - used),
            None => self.held,
        }
    }

    /// When it was last written.
    pub const fn written_at(self) -> Micros {
        self.written_at
    }

    /// What can be spent at `now`: the tokens of the last write and those that have come back since, up to the capacity. Those
    /// of a quota all come back when the next window starts.
    #[inline]
    pub fn available(self, limit: &Limit, now: Micros) -> MicroTokens {
        if let Some(windows) = limit.windows() {
            let is_over = self.written_at < windows.window_at(now).start;
            let capacity = limit.capacity_micro();
            return if is_over { capacity } else { self.held_under_quota(capacity).min(capacity) };
        }
        let held = self.held_under_rate(limit);
        // A signed number becomes a double in one step. No clock tells a time that is half of all numbers later.
        let elapsed_us = now.since_us(self.written_at).min(i64::MAX as u64).cast_signed() as f64;
        // The cast rounds down as `floor` does. It saturates at the largest integer, which is far beyond any capacity.
        let gained = (elapsed_us * limit.rate()) as i64;
        let held = held.get().saturating_add(gained);
        MicroTokens::new(held.min(limit.capacity_micro().get()))
    }

    /// The bucket after spending `cost`. `None` if it holds less. A cost of zero asks for one token and spends none.
    #[inline]
    pub fn spend(self, limit: &Limit, cost: Cost, now: Micros) -> Option<Self> {
        let there = self.available(limit, now);
        let left = MicroTokens::new(there.get() - cost.micro().get());
        cost.is_covered_by(there).then(|| Self::holding(limit, left, self.written_at.max(now)))
    }

    /// The bucket after taking `cost` whether or not it is there, down to the limit's debt, and what did not fit.
    pub fn charge(self, limit: &Limit, cost: Cost, now: Micros) -> (Self, MicroTokens) {
        let there = self.available(limit, now).get();
        // A bucket that owes more than the limit allows now, because the limit was changed, is not forgiven.
        let lowest = there.min(-limit.debt_micro().get());
        let held = (there - cost.micro().get()).max(lowest);
        let uncovered = cost.micro().get() - (there - held);
        let left = Self::holding(limit, MicroTokens::new(held), self.written_at.max(now));
        (left, MicroTokens::new(uncovered))
    }

    /// The bucket after giving `cost` back, never above the capacity.
    #[must_use]
    pub fn refund(self, limit: &Limit, cost: Cost, now: Micros) -> Self {
        let held = self.available(limit, now).get() + cost.micro().get();
        let held = held.min(limit.capacity_micro().get());
        Self::holding(limit, MicroTokens::new(held), self.written_at.max(now))
    }

    /// What is left of a quota. What a rate held says nothing of the quota that takes its place; what it owed is owed.
    const fn held_under_quota(self, capacity: MicroTokens) -> MicroTokens {
        match self.used() {
            Some(_) => self.held_of(capacity),
            None if self.held.get() < 0 => MicroTokens::new(capacity.get() + self.held.get()),
            None => capacity,
        }
    }

    /// What it held when last written. What was used of a quota is no debt of a rate that takes its place.
    #[inline]
    const fn held_under_rate(self, limit: &Limit) -> MicroTokens {
        if self.held.get() > UNUSED { self.held } else { self.left_of_quota(limit) }
    }

    #[cold]
    const fn left_of_quota(self, limit: &Limit) -> MicroTokens {
        let left = self.held_of(limit.capacity_micro()).get();
        MicroTokens::new(if left > 0 { left } else { 0 })
    }

    /// True if the clock has stepped back so far that waiting for it to catch up would lock the key out: by more than a second,
    /// and for a quota by more than the window after this one.
    #[inline]
    pub fn lies_ahead_of(self, limit: &Limit, now: Micros) -> bool {
        self.written_at.since_us(now) > REBASE_AFTER_US && self.lies_windows_ahead_of(limit, now)
    }

    #[cold]
    fn lies_windows_ahead_of(self, limit: &Limit, now: Micros) -> bool {
        let next = |windows: QuotaWindows| windows.window_at(windows.window_at(now).end);
        limit.windows().is_none_or(|windows| self.written_at >= next(windows).end)
    }

    /// The same tokens, written now, if the clock has stepped far back. Otherwise the bucket as it is.
    #[must_use]
    #[inline]
    pub fn rebased(self, limit: &Limit, now: Micros) -> Self {
        if self.lies_ahead_of(limit, now) { Self { written_at: now, ..self } } else { self }
    }

    /// Microseconds from `now` until `wanted` is there; zero if it already is.
    ///
    /// It counts from the last write, not from `now`, and multiplies as [`available`](Self::available) does: a caller
    /// that waits exactly this long finds at least `wanted`.
    pub fn wait_for_us(self, limit: &Limit, wanted: MicroTokens, now: Micros) -> u64 {
        if self.available(limit, now) >= wanted {
            return 0;
        }
        if let Some(windows) = limit.windows() {
            // A bucket that was written in the next window, by a clock that is a little ahead, is full when that has ended.
            return windows.window_at(now.max(self.written_at)).end.since_us(now);
        }
        if limit.is_concurrency() {
            return ASK_AGAIN_US;
        }
        let missing = (wanted.get() - self.held_under_rate(limit).get()).max(0);
        self.written_at.plus_us(limit.time_to_gain_us(missing)).since_us(now)
    }
}
