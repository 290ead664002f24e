//! The time of day for response headers, which callers compare with their own clocks.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::{Clock, Micros, SystemClock};

/// How often the machine's clock is read, in microseconds.
const CHECK_EVERY_US: u64 = 1_000_000;

/// The time of day by the CPU's counter, corrected by the machine's clock once a second.
///
/// Reading the machine's clock for each request would be a fifth of the layer's cost. A step of that clock is followed within
/// a second, which is the precision of the headers.
pub(crate) struct CachedWallClock {
    monotonic: SystemClock,
    /// How far the time of day is ahead of the counter. Wraps around if it is behind.
    ahead_us: AtomicU64,
    check_at_us: AtomicU64,
}

impl CachedWallClock {
    pub(crate) fn new() -> Self {
        Self { monotonic: SystemClock::new(), ahead_us: AtomicU64::new(0), check_at_us: AtomicU64::new(0) }
    }
}

impl Clock for CachedWallClock {
    fn now(&self) -> Micros {
        let now_us = self.monotonic.now().get();
        // Two threads may correct it at once. They write the same value, to within a microsecond.
        if now_us >= self.check_at_us.load(Ordering::Relaxed) {
            self.ahead_us.store(SystemClock::wall_now().get().wrapping_sub(now_us), Ordering::Relaxed);
            self.check_at_us.store(now_us + CHECK_EVERY_US, Ordering::Relaxed);
        }
        Micros::new(now_us.wrapping_add(self.ahead_us.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_the_time_that_the_machine_tells() {
        let clock = CachedWallClock::new();
        for _ in 0..3 {
            let (before, told, after) = (SystemClock::wall_now(), clock.now(), SystemClock::wall_now());
            assert!(told.since_us(after) < 10_000 && before.since_us(told) < 10_000);
        }
    }
}
