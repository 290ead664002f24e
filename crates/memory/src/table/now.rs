//! The time of one operation, by the two clocks that buckets follow.

use spile_core::{Bucket, Clock, Limit, Micros};

/// The time of one operation.
///
/// A step of the wall clock must not refill a rate, and a quota must follow it. So each entry is in its own time: rates and permits in
/// steady time, quotas in wall time. Outside of the table all moments are in wall time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Monotonic time, anchored to the wall clock when the clock was made.
    pub(crate) steady: Micros,
    /// The microseconds by which the wall clock is ahead of it.
    ahead_us: i64,
}

impl Now {
    #[inline]
    pub(crate) fn of(clock: &impl Clock) -> Self {
        Self { steady: clock.now(), ahead_us: clock.wall_ahead_us() }
    }

    /// The time that the wall clock shows.
    #[inline]
    pub(crate) const fn wall(self) -> Micros {
        self.to_wall(self.steady)
    }

    /// The time that the buckets of a limit go by.
    #[inline]
    pub(crate) const fn by_clock_of(self, limit: &Limit) -> Micros {
        if limit.rate().is_some() { self.steady } else { self.wall() }
    }

    /// Steady time as wall time.
    #[inline]
    pub(crate) const fn to_wall(self, steady: Micros) -> Micros {
        Micros::new(steady.get().wrapping_add_signed(self.ahead_us))
    }

    /// A bucket of an entry, in wall time.
    #[inline]
    pub(crate) const fn bucket_to_wall(self, bucket: Bucket, limit: &Limit) -> Bucket {
        if limit.rate().is_some() {
            Bucket::new(bucket.amount(), self.to_wall(bucket.moment()))
        } else {
            bucket
        }
    }

    /// A bucket in wall time, as its entry keeps it.
    #[inline]
    pub(crate) const fn bucket_from_wall(self, bucket: Bucket, limit: &Limit) -> Bucket {
        Self { ahead_us: -self.ahead_us, ..self }.bucket_to_wall(bucket, limit)
    }

    /// A moment at which both clocks agree.
    #[cfg(test)]
    pub(crate) const fn at(moment: Micros) -> Self {
        Self { steady: moment, ahead_us: 0 }
    }
}
