//! A bucket in the store as of an earlier answer.

use spile_core::{Amount, Bucket, Limit, Micros};

/// The clocks of this machine and of the store are assumed to differ in speed by at most one part in this many.
const DRIFT: u64 = 1_000;

/// A bucket as an answer of the store reported it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BucketNote {
    pub(crate) bucket: Bucket,
    /// The store's time in its answer.
    pub(crate) store_heard: Micros,
    /// When the question was sent, by the clock of this machine.
    pub(crate) sent: Micros,
    /// When the answer came, by the clock of this machine.
    pub(crate) heard: Micros,
}

impl BucketNote {
    /// The store's time at `now`, as late as the answer was: a caller that waits by it does not come too early.
    pub(crate) fn store_time(&self, now: Micros) -> Micros {
        self.store_heard.plus_us(now.since_us(self.heard))
    }

    /// The bucket as the clock behind `other` would have written it.
    pub(crate) fn bucket_by_clock_of(&self, other: &Self) -> Bucket {
        let shifted = |here: Micros| here.get().saturating_add(other.store_heard.get());
        let written = shifted(self.bucket.moment()).saturating_add(self.heard.get());
        let written = written.saturating_sub(self.store_heard.get()).saturating_sub(other.heard.get());
        Bucket::new(self.bucket.amount(), Micros::new(written))
    }

    /// True if the store answered this one later than `other`. If both were in flight at once, its own time decides, and then the bucket
    /// itself: within one microsecond it is only spent from.
    pub(crate) fn is_later_than(&self, other: &Self) -> bool {
        if other.sent >= self.heard {
            return false;
        }
        let by_store =
            |note: &Self| (note.store_heard, note.bucket.moment(), std::cmp::Reverse(note.bucket.amount()));
        self.sent >= other.heard || by_store(self) > by_store(other)
    }

    /// Microseconds since the question was sent, by the faster of the two clocks.
    pub(crate) const fn age_us(&self, now: Micros) -> u64 {
        let age_us = now.since_us(self.sent);
        age_us.saturating_add(age_us / DRIFT)
    }

    /// The most that time can have made of the bucket, however early after being sent the question was answered.
    pub(crate) fn at_most(&self, limit: &Limit, now: Micros) -> Amount {
        self.bucket.available(limit, self.store_heard.plus_us(self.age_us(now)))
    }

    /// The amount in the bucket now if no other instance has spent from it.
    pub(crate) fn at_least(&self, limit: &Limit, now: Micros) -> Amount {
        self.bucket.available(limit, self.store_time(now))
    }
}
