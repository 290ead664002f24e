//! The CPU's counter as a time that never goes back, even if the counter does.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Clock;
use crate::Micros;

/// The interval at which the slow path checks the counter, in microseconds of this clock.
pub(super) const CHECK_EVERY_US: u64 = 100_000;
/// A counter that is further behind than this has restarted. Smaller differences occur between cores, or after the clock was held
/// back briefly.
const RESTARTED_US: i64 = 100_000;

/// The CPU's counter, and the offset that turns it into a time.
#[derive(Debug)]
pub(super) struct AnchoredCounter {
    source: quanta::Clock,
    /// Microseconds per tick of the counter, in units of 2^-64: one multiplication converts a count to a time.
    us_per_tick: u64,
    /// The clock that the counter starts from and is compared with.
    pub(super) wall: Box<dyn Clock>,
    /// Added to the counter's microseconds. Wraps around if the counter is ahead of the time.
    offset_us: AtomicU64,
    /// The time of the last check. Written at most ten times a second, so that threads which share the clock do not contend for its
    /// cache line.
    checked_us: AtomicU64,
}

impl AnchoredCounter {
    /// A counter that starts at the wall time of this moment.
    pub(super) fn new(source: quanta::Clock, wall: Box<dyn Clock>) -> Self {
        let (us_per_tick, now_us) = (us_per_tick(&source), wall.now().get());
        let [offset_us, checked_us] = [0, now_us].map(AtomicU64::new);
        let mut counter = Self { source, us_per_tick, wall, offset_us, checked_us };
        *counter.offset_us.get_mut() = now_us.wrapping_sub(counter.counted_us());
        counter
    }

    /// The current time. `correct` is called at most ten times a second with two arguments, in microseconds: how far the wall clock is
    /// ahead, and the time since the last call. It returns the correction to apply from then on.
    #[inline]
    pub(super) fn now(&self, correct: impl FnOnce(i64, u64) -> i64) -> Micros {
        let now_us = self.read_us().1;
        if now_us.wrapping_sub(self.checked_us.load(Ordering::Relaxed)) < CHECK_EVERY_US {
            return Micros::new(now_us);
        }
        Micros::new(self.checked_now_us(correct))
    }

    /// The offset, and the time that results from it. The counter is read last: if another thread replaces the offset meanwhile, a
    /// restarted counter gives a time far in the past, which is detected, and never one in the future.
    #[inline]
    fn read_us(&self) -> (u64, u64) {
        let offset_us = self.offset_us.load(Ordering::Acquire);
        (offset_us, self.counted_us().wrapping_add(offset_us))
    }

    /// Microseconds that the counter has counted since its start.
    #[inline]
    fn counted_us(&self) -> u64 {
        ((u128::from(self.source.raw()) * u128::from(self.us_per_tick)) >> 64) as u64
    }

    #[cold]
    fn checked_now_us(&self, correct: impl FnOnce(i64, u64) -> i64) -> u64 {
        loop {
            let checked_us = self.checked_us.load(Ordering::Acquire);
            let (offset_us, now_us) = self.read_us();
            let elapsed_us = now_us.wrapping_sub(checked_us).cast_signed();
            if elapsed_us >= 0 {
                self.check(checked_us, now_us, correct);
                return now_us;
            }
            if elapsed_us >= -RESTARTED_US {
                return checked_us;
            }
            if let Some(resumed_us) = self.resume(offset_us, now_us, checked_us) {
                return resumed_us;
            }
        }
    }

    /// Moves the clock by the result of `correct`. Only one thread does so in each interval.
    fn check(&self, checked_us: u64, now_us: u64, correct: impl FnOnce(i64, u64) -> i64) {
        let elapsed_us = now_us.wrapping_sub(checked_us);
        let due = elapsed_us >= CHECK_EVERY_US;
        if due && replaced(&self.checked_us, checked_us, now_us) {
            let ahead_us = self.wall.now().get().wrapping_sub(now_us).cast_signed();
            let by_us = correct(ahead_us, elapsed_us);
            self.offset_us.fetch_add(by_us.cast_unsigned(), Ordering::AcqRel);
        }
    }

    /// Resumes after the counter has restarted, from the latest time that a caller can have seen. `None` if another thread did so
    /// first.
    fn resume(&self, offset_us: u64, now_us: u64, checked_us: u64) -> Option<u64> {
        let resumed_us = checked_us.wrapping_add(CHECK_EVERY_US);
        let anew_us = offset_us.wrapping_add(resumed_us.wrapping_sub(now_us));
        let resumed = replaced(&self.offset_us, offset_us, anew_us);
        resumed.then(|| {
            self.checked_us.fetch_max(resumed_us, Ordering::AcqRel);
            resumed_us
        })
    }
}

fn replaced(value: &AtomicU64, old: u64, new: u64) -> bool {
    value.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Microseconds per tick of the counter, in units of 2^-64, rounded up: the counts of a counter of nanoseconds are then exact
/// for 200 days.
fn us_per_tick(source: &quanta::Clock) -> u64 {
    const TICKS_LOG2: u32 = 50;
    let ns = u128::from(source.delta_as_nanos(0, 1 << TICKS_LOG2));
    let units = (ns << (64 - TICKS_LOG2)).div_ceil(1_000);
    u64::try_from(units).unwrap_or(u64::MAX)
}
