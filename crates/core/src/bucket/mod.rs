//! The bucket: two integers and the arithmetic that both this crate and `spend.lua` do, in the same order on
//! the same doubles, so that they agree bit for bit.

mod step;

pub use self::step::{BucketSlot, charge, peek, refund, refund_once, spend, spend_up_to};
use crate::{Cost, Limit, MicroTokens, Micros};

/// How far ahead of the clock a bucket's last write may lie before it is rebased to now. Less is jitter that
/// the clock will catch up with; more would lock the caller out.
const REBASE_AFTER_US: u64 = 1_000_000;

/// What one key has left under one limit, as of the moment it was last written. Below zero it owes tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bucket {
    held: MicroTokens,
    written_at: Micros,
}

impl Bucket {
    /// A bucket as a store kept it.
    pub const fn new(held: MicroTokens, written_at: Micros) -> Self {
        Self { held, written_at }
    }

    /// The bucket of a key that has not been seen yet.
    pub const fn full(limit: &Limit, now: Micros) -> Self {
        Self { held: limit.capacity_micro(), written_at: now }
    }

    /// Micro-tokens held when last written.
    pub const fn held(self) -> MicroTokens {
        self.held
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
            return if is_over { limit.capacity_micro() } else { self.held.min(limit.capacity_micro()) };
        }
        let elapsed_us = now.since_us(self.written_at) as f64;
        // The cast rounds down as `floor` does. It saturates at the largest integer, which is far beyond any capacity.
        let gained = (elapsed_us * limit.rate()) as i64;
        let held = self.held.get().saturating_add(gained);
        MicroTokens::new(held.min(limit.capacity_micro().get()))
    }

    /// The bucket after spending `cost`. `None` if it holds less. A cost of zero asks for one token and spends none.
    #[inline]
    pub fn spend(self, limit: &Limit, cost: Cost, now: Micros) -> Option<Self> {
        let there = self.available(limit, now);
        (there >= cost.asked()).then(|| Self {
            held: MicroTokens::new(there.get() - cost.micro().get()),
            written_at: self.written_at.max(now),
        })
    }

    /// The bucket after taking `cost` whether or not it is there, down to the limit's debt, and what did not fit.
    pub fn charge(self, limit: &Limit, cost: Cost, now: Micros) -> (Self, MicroTokens) {
        let there = self.available(limit, now).get();
        // A bucket that owes more than the limit allows now, because the limit was changed, is not forgiven.
        let lowest = there.min(-limit.debt_micro().get());
        let held = (there - cost.micro().get()).max(lowest);
        let uncovered = cost.micro().get() - (there - held);
        let charged = Self { held: MicroTokens::new(held), written_at: self.written_at.max(now) };
        (charged, MicroTokens::new(uncovered))
    }

    /// The bucket after giving `cost` back, never above the capacity.
    #[must_use]
    pub fn refund(self, limit: &Limit, cost: Cost, now: Micros) -> Self {
        let held = self.available(limit, now).get() + cost.micro().get();
        let held = held.min(limit.capacity_micro().get());
        Self { held: MicroTokens::new(held), written_at: self.written_at.max(now) }
    }

    /// True if the clock has stepped back so far that waiting for it to catch up would lock the key out.
    pub const fn lies_ahead_of(self, now: Micros) -> bool {
        self.written_at.since_us(now) > REBASE_AFTER_US
    }

    /// The same tokens, written now, if the clock has stepped far back. Otherwise the bucket as it is.
    #[must_use]
    #[inline]
    pub fn rebased(self, now: Micros) -> Self {
        if self.lies_ahead_of(now) { Self { written_at: now, ..self } } else { self }
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
        let missing = (wanted.get() - self.held.get()).max(0);
        self.written_at.plus_us(limit.time_to_gain_us(missing)).since_us(now)
    }
}
