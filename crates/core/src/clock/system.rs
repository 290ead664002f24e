//! The machine's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::counter::AnchoredCounter;
use super::{Clock, Wall};
use crate::Micros;

/// The machine's clock: monotonic time from the wall time of its creation, so that a step of the wall clock neither mints tokens
/// nor takes them.
///
/// If the CPU's counter restarts, as it may when the machine wakes up, the clock continues from its last time: time spent asleep is
/// not counted. Clones share the time.
#[derive(Clone, Debug)]
pub struct SystemClock(Arc<SystemTime>);

#[derive(Debug)]
struct SystemTime {
    counter: AnchoredCounter,
    /// How far the wall clock was ahead at the last check.
    ahead_us: AtomicI64,
}

/// A smaller difference is a time server that slews the clock, not a step: times stay in order meanwhile.
const STEP_US: u64 = 10_000;

impl SystemClock {
    /// A clock that starts at the current wall time.
    pub fn new() -> Self {
        Self::counted_by(quanta::Clock::new(), Box::new(Wall))
    }

    /// The current wall time, including its steps, for people and other machines.
    pub fn wall_now() -> Micros {
        Wall.now()
    }

    fn counted_by(source: quanta::Clock, wall: Box<dyn Clock>) -> Self {
        let counter = AnchoredCounter::new(source, wall);
        Self(Arc::new(SystemTime { counter, ahead_us: AtomicI64::new(0) }))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Micros {
        self.0.counter.now(|ahead_us, _| self.0.record(ahead_us))
    }

    fn wall(&self) -> Micros {
        self.0.counter.wall.now()
    }

    #[inline]
    fn wall_ahead_us(&self) -> i64 {
        self.0.ahead_us.load(Ordering::Relaxed)
    }
}

impl SystemTime {
    /// Records how far the wall clock is ahead. The clock itself is not moved.
    fn record(&self, ahead_us: i64) -> i64 {
        if ahead_us.abs_diff(self.ahead_us.load(Ordering::Relaxed)) >= STEP_US {
            self.ahead_us.store(ahead_us, Ordering::Relaxed);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::counter::CHECK_EVERY_US;
    use super::*;

    const BEGAN: Micros = Micros::from_secs(1_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn counted_by(source: quanta::Clock, now: Micros) -> SystemClock {
        SystemClock::counted_by(source, Box::new(crate::FakeClock::at(now)))
    }

    #[test]
    fn a_step_of_the_wall_clock_is_reported_within_a_second_and_does_not_move_the_clock() {
        let ((source, counter), wall) = (quanta::Clock::mock(), crate::FakeClock::at(BEGAN));
        counter.increment(HOUR);
        let clock = SystemClock::counted_by(source, Box::new(wall.clone()));
        let second = Duration::from_secs(1);
        let pass = || {
            counter.increment(second);
            wall.advance(second);
            (clock.now(), clock.wall_ahead_us())
        };
        assert_eq!(pass(), (BEGAN + second, 0));
        wall.advance(5 * HOUR);
        assert_eq!(pass(), (BEGAN + 2 * second, 5 * 3_600_000_000));
        wall.step_back(9 * HOUR);
        assert_eq!(pass(), (BEGAN + 3 * second, -4 * 3_600_000_000));
        // A time server that corrects drift does not count as a step.
        wall.advance(Duration::from_millis(9));
        assert_eq!(pass(), (BEGAN + 4 * second, -4 * 3_600_000_000));
    }

    #[test]
    fn it_goes_on_from_where_it_stood_when_the_counter_restarts() {
        let (source, counter) = quanta::Clock::mock();
        counter.increment(24 * HOUR);
        let clock = counted_by(source, BEGAN);
        counter.increment(HOUR);
        let before = clock.now();
        assert_eq!(before, BEGAN + HOUR);
        counter.decrement(25 * HOUR);
        let woken = clock.now();
        assert!(woken >= before && woken.since_us(before) <= CHECK_EVERY_US, "{before:?}, {woken:?}");
        counter.increment(HOUR);
        assert_eq!(clock.clone().now(), woken + HOUR, "and refills again");
    }

    #[test]
    fn a_core_whose_counter_is_a_little_behind_does_not_turn_it_back() {
        let (source, counter) = quanta::Clock::mock();
        let clock = counted_by(source, BEGAN);
        counter.increment(HOUR);
        let told = clock.now();
        counter.decrement(Duration::from_millis(3));
        assert_eq!(clock.now(), told);
        counter.increment(Duration::from_millis(4));
        assert_eq!(clock.now(), told.plus_us(1_000));
    }

    #[test]
    fn the_wall_time_is_the_machines_and_that_of_a_clock_that_knows_no_other_is_its_own() {
        let modified = std::fs::metadata(std::env::temp_dir()).and_then(|folder| folder.accessed());
        let past = modified.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let wall = SystemClock::new().wall();
        assert!(past.is_some_and(|past| wall >= Micros::new(0) + past), "{wall:?}");
        let fake = crate::FakeClock::at(BEGAN);
        assert_eq!((fake.wall(), std::sync::Arc::new(fake).wall()), (BEGAN, BEGAN));
    }

    proptest! {
        #[test]
        fn it_never_goes_back_nor_further_than_its_counter(
            steps in prop::collection::vec((0u64..10_000_000_000, prop::bool::weighted(0.1)), 1..200),
        ) {
            let (source, counter) = quanta::Clock::mock();
            let clock = counted_by(source, BEGAN);
            let (mut counted_ns, mut told) = (0, clock.now());
            for (by_ns, restarts) in steps {
                // A counter restarts while the machine sleeps, so restarts are at least seconds apart.
                let restarts = restarts && counted_ns > 11_000_000_000;
                if restarts {
                    counter.decrement(counted_ns);
                    counted_ns = 0;
                }
                counter.increment(by_ns);
                counted_ns += by_ns;
                let now = clock.now();
                prop_assert!(now >= told, "{now:?} after {told:?}");
                let most_us = by_ns / 1_000 + 1 + if restarts { CHECK_EVERY_US } else { 0 };
                prop_assert!(now.since_us(told) <= most_us, "{now:?} after {told:?}");
                told = now;
            }
        }
    }
}
