//! The bucket: two integers, and arithmetic that the script of `spile-redis` repeats in the same order on the same doubles, so that
//! both agree bit for bit.

mod permits;
mod step;

pub use self::permits::{ChainPermits, PermitSet, permit};
pub use self::step::{BucketSlot, decide};
use crate::{Amount, Cost, Limit, Micros, Shape, SpendTime};

/// How far in the future a bucket's last write may lie before it is rebased to now. A smaller lead is jitter that the clock catches
/// up with; a larger one would lock the caller out.
const REBASE_AFTER_US: u64 = 1_000_000;

/// The wait that a denied permit reports: when a permit will be released cannot be known.
const ASK_AGAIN_US: u64 = 1_000_000;

/// The state of one key under one limit: an amount and a moment, whose meaning depends on the shape of the limit. The shape is part
/// of a bucket's identity, so a store never shows the bucket of one shape to a limit of another.
///
/// | shape | amount | moment |
/// |---|---|---|
/// | rate | tokens held when last written; negative if in debt | time of the last write |
/// | quota | tokens used | end of the window in which they were used |
/// | concurrency | free places | time when they were counted |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bucket {
    amount: Amount,
    moment: Micros,
}

impl Bucket {
    /// Restores a bucket from the amount and the moment that a store kept.
    pub const fn new(amount: Amount, moment: Micros) -> Self {
        Self { amount, moment }
    }

    /// The bucket of a key that has not been seen yet.
    #[inline]
    pub const fn full(limit: &Limit, now: Micros) -> Self {
        let amount = match limit.shape() {
            Shape::Rate(_) | Shape::Concurrency(_) => limit.capacity(),
            Shape::Quota(_) => Amount::ZERO,
        };
        Self { amount, moment: now }
    }

    /// A bucket with `available` left at `now`.
    #[inline]
    pub fn holding(limit: &Limit, available: Amount, now: Micros) -> Self {
        match limit.shape() {
            Shape::Rate(_) | Shape::Concurrency(_) => Self { amount: available, moment: now },
            Shape::Quota(quota) => {
                let used = Amount::from_micro(limit.capacity().micro() - available.micro());
                Self { amount: used, moment: quota.windows().window_at(now).end }
            }
        }
    }

    /// The free places of a concurrency of which `held` permits are held.
    pub fn places(limit: &Limit, held: u32, now: Micros) -> Self {
        Self { amount: limit.capacity().above(Amount::from_tokens(held)), moment: now }
    }

    /// The amount that a store keeps. Its meaning depends on the shape of the limit.
    pub const fn amount(self) -> Amount {
        self.amount
    }

    /// The moment that a store keeps. Its meaning depends on the shape of the limit.
    pub const fn moment(self) -> Micros {
        self.moment
    }

    /// Returns the bucket with `more` available.
    #[must_use]
    pub fn with_more(self, limit: &Limit, more: Amount) -> Self {
        let amount = match limit.shape() {
            Shape::Rate(_) | Shape::Concurrency(_) => self.amount + more,
            Shape::Quota(_) => self.amount - more,
        };
        Self { amount, ..self }
    }

    /// The amount that can be spent at `now`. For a rate: the tokens of the last write and those refilled since, up to the
    /// capacity. For a quota: the part of the window's tokens that is not used yet.
    #[inline]
    pub fn available(self, limit: &Limit, now: Micros) -> Amount {
        let (capacity, amount) = (limit.capacity().micro(), self.amount.micro());
        let available = match limit.shape() {
            Shape::Rate(rate) => amount.saturating_add(rate.gained_in(now.since_us(self.moment))),
            Shape::Quota(_) if now < self.moment => capacity - amount,
            Shape::Quota(_) => capacity,
            Shape::Concurrency(_) => amount,
        };
        Amount::from_micro(available.min(capacity))
    }

    /// Spends `cost` and returns the bucket afterwards, or `None` if it has less. A cost of zero asks for a quantum and spends
    /// nothing.
    #[inline]
    pub fn spend(self, limit: &Limit, cost: Cost, now: Micros) -> Option<Self> {
        let available = self.available(limit, now);
        let left = Amount::from_micro(available.micro() - cost.amount().micro());
        limit.is_covered(cost, available).then(|| self.left_with(limit, left, now))
    }

    /// Takes `cost` whether or not it is available, down to the limit's debt. Returns the bucket afterwards and the amount that did
    /// not fit.
    pub fn charge(self, limit: &Limit, cost: Cost, now: Micros) -> (Self, Amount) {
        let available = self.available(limit, now);
        // A debt that is deeper than the limit now allows, because the limit was changed, is not forgiven.
        let lowest = available.min(Amount::ZERO - limit.debt());
        let left = (available - cost.amount()).max(lowest);
        let uncovered = cost.amount() - (available - left);
        (self.left_with(limit, left, now), uncovered)
    }

    /// True if the bucket has the usage of the time when a refund was spent: that of a quota is of one window only.
    pub(crate) fn holds_usage_of(self, limit: &Limit, spent: SpendTime, now: Micros) -> bool {
        let Some(windows) = limit.windows() else { return true };
        let window = windows.window_at(now);
        // A clock that was slightly ahead has written a bucket of the next window.
        let start = if self.moment > window.end { window.end } else { window.start };
        spent.moment(now).is_some_and(|spent| start <= spent && spent < self.moment)
    }

    /// Returns the bucket with `cost` put back, never above the capacity.
    #[must_use]
    pub fn refund(self, limit: &Limit, cost: Cost, now: Micros) -> Self {
        let left = (self.available(limit, now) + cost.amount()).min(limit.capacity());
        self.left_with(limit, left, now)
    }

    /// The bucket after a write at `now`. A moment that lies later is kept, so that no time refills twice.
    #[inline]
    fn left_with(self, limit: &Limit, left: Amount, now: Micros) -> Self {
        match limit.shape() {
            Shape::Rate(_) => Self { amount: left, moment: self.moment.max(now) },
            Shape::Quota(_) => {
                let written = Self::holding(limit, left, now);
                Self { moment: self.moment.max(written.moment), ..written }
            }
            Shape::Concurrency(_) => Self::holding(limit, left, now),
        }
    }

    /// Moves a bucket that lies too far in the future back, so that a clock that was stepped back does not lock the key out. A rate
    /// that lies more than a second ahead is rebased to `now`. A quota whose window ends after the next window is cut to the end of
    /// the current one. The amount is kept.
    #[must_use]
    #[inline]
    pub fn rebased(self, limit: &Limit, now: Micros) -> Self {
        if self.moment <= now { self } else { self.rebased_back(limit, now) }
    }

    fn rebased_back(self, limit: &Limit, now: Micros) -> Self {
        let moment = match limit.shape() {
            Shape::Rate(_) if self.moment.since_us(now) > REBASE_AFTER_US => now,
            Shape::Quota(quota) => {
                let end = quota.windows().window_at(now).end;
                let lies_ahead = self.moment > end && self.moment > quota.windows().window_at(end).end;
                if lies_ahead { end } else { self.moment }
            }
            Shape::Rate(_) | Shape::Concurrency(_) => self.moment,
        };
        Self { moment, ..self }
    }

    /// Microseconds from `now` until `wanted` is available; zero if it already is.
    ///
    /// A rate counts from the last write, not from `now`, and multiplies as [`available`](Self::available) does, so a caller that
    /// waits exactly this long finds at least `wanted`.
    pub fn wait_for_us(self, limit: &Limit, wanted: Amount, now: Micros) -> u64 {
        if self.available(limit, now) >= wanted {
            return 0;
        }
        match limit.shape() {
            Shape::Rate(rate) => {
                let missing = wanted.above(self.amount);
                self.moment.plus_us(rate.time_to_gain_us(missing.micro())).since_us(now)
            }
            // A bucket of the next window, written by a clock that was slightly ahead, is full when that window has ended.
            Shape::Quota(_) => self.rebased(limit, now).moment.since_us(now),
            Shape::Concurrency(_) => ASK_AGAIN_US,
        }
    }
}
