//! The machine's clock.

use std::sync::Arc;

use super::counter::AnchoredCounter;
use super::{Clock, wall};
use crate::Micros;

/// The machine's clock: the wall time when it was made, and monotonic time from there, so that a step of the
/// wall clock neither mints tokens nor takes them.
///
/// If the CPU's counter restarts, as it may when the machine wakes up, the clock continues from its last time: the time
/// that the machine slept is not counted. Clones are one clock.
#[derive(Clone, Debug)]
pub struct SystemClock {
    counter: Arc<AnchoredCounter>,
}

impl SystemClock {
    /// A clock anchored to the wall time of this moment.
    pub fn new() -> Self {
        Self::counted_by(quanta::Clock::new(), wall())
    }

    /// The wall time of this moment, including its steps, for people and other machines.
    pub fn wall_now() -> Micros {
        wall()
    }

    fn counted_by(source: quanta::Clock, now: Micros) -> Self {
        Self { counter: Arc::new(AnchoredCounter::new(source, now)) }
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
        self.counter.now(|_, _| 0)
    }

    fn wall(&self) -> Micros {
        wall()
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

    #[test]
    fn it_goes_on_from_where_it_stood_when_the_counter_restarts() {
        let (source, counter) = quanta::Clock::mock();
        counter.increment(24 * HOUR);
        let clock = SystemClock::counted_by(source, BEGAN);
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
        let clock = SystemClock::counted_by(source, BEGAN);
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
            let clock = SystemClock::counted_by(source, BEGAN);
            let (mut counted_ns, mut told) = (0, clock.now());
            for (by_ns, restarts) in steps {
                // A counter restarts when the machine slept, seconds after it last did at the earliest.
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
