//! A clock for several machines that share buckets.

use std::sync::Arc;

use super::counter::AnchoredCounter;
use super::{Clock, Wall};
use crate::Micros;

/// The slew rate, as a divisor: the clock runs at most `1 / SLEW` fast or slow to meet the wall clock.
const SLEW: u64 = 100;
/// The longest interval that one correction covers, in microseconds.
const LONGEST_US: u64 = 1_000_000;

/// Monotonic time that follows the wall clock, for buckets that several machines share and decide about by their own clocks, each
/// synchronized by NTP.
///
/// It never goes back, and it is *slewed*, never stepped: while it differs from the wall clock, it runs 1% fast or slow. It
/// therefore follows the wall clock however long the process runs, and if the wall clock jumps by hours, buckets refill 1% faster
/// than they should, not by hours' worth at once. The cost: an instance whose wall clock was wrong by a minute is right again after
/// a hundred minutes, or after a restart. Clones share the time.
#[derive(Clone, Debug)]
pub struct SlewedClock(Arc<AnchoredCounter>);

impl SlewedClock {
    /// A clock that starts at the current wall time.
    pub fn new() -> Self {
        Self::following(quanta::Clock::new(), Box::new(Wall))
    }

    fn following(source: quanta::Clock, wall: Box<dyn Clock>) -> Self {
        Self(Arc::new(AnchoredCounter::new(source, wall)))
    }
}

impl Default for SlewedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SlewedClock {
    #[inline]
    fn now(&self) -> Micros {
        self.0.now(|behind_us, elapsed_us| {
            let most_us = (elapsed_us.min(LONGEST_US) / SLEW).cast_signed();
            behind_us.clamp(-most_us, most_us)
        })
    }

    fn wall(&self) -> Micros {
        self.0.wall.now()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::counter::CHECK_EVERY_US;
    use super::*;
    use crate::FakeClock;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3_600);
    /// The start of 2020, earlier than any time of the system's clock.
    const LONG_AGO: Micros = Micros::from_secs(1_577_836_800);

    #[test]
    fn the_machines_time_is_told_by_each_way_to_ask_for_it() {
        let clock = SlewedClock::new();
        for told in [clock.now(), clock.wall(), crate::SystemClock::wall_now()] {
            assert!(told > LONG_AGO, "{told:?}");
        }
        assert!(format!("{clock:?}").starts_with("SlewedClock"), "{clock:?}");
    }

    /// A scripted counter and wall clock, and the clock between them.
    struct Bench {
        counter: Arc<quanta::Mock>,
        wall: FakeClock,
        clock: SlewedClock,
    }

    impl Bench {
        fn new() -> Self {
            let ((source, counter), wall) = (quanta::Clock::mock(), FakeClock::default());
            counter.increment(24 * HOUR);
            let clock = SlewedClock::following(source, Box::new(wall.clone()));
            Self { counter, wall, clock }
        }

        /// Advances both by `time`, one second at a time, and returns by how much the clock moved.
        fn pass(&self, time: Duration) -> Duration {
            let before = self.clock.now();
            for _ in 0..time.as_secs() {
                self.counter.increment(SECOND);
                self.wall.advance(SECOND);
                let now = self.clock.now();
                assert!(now >= before);
            }
            Duration::from_micros(self.clock.now().since_us(before))
        }

        fn differs_us(&self) -> u64 {
            self.clock.now().get().abs_diff(self.wall.now().get())
        }
    }

    #[test]
    fn it_keeps_to_the_wall_clock_however_wrong_its_counter_is() {
        for (counted_ns, passed_us) in [(999_999_000, 1_000_000), (1_000_000_000, 999_950)] {
            let bench = Bench::new();
            for _ in 0..86_400 {
                bench.counter.increment(counted_ns);
                bench.wall.advance(Duration::from_micros(passed_us));
                let _now = bench.clock.now();
            }
            assert!(bench.differs_us() < 1_000, "{} us after a day", bench.differs_us());
        }
    }

    #[test]
    fn a_wall_clock_that_jumps_ahead_refills_one_part_in_a_hundred_faster_and_no_more() {
        let bench = Bench::new();
        bench.wall.advance(HOUR);
        let moved = bench.pass(HOUR);
        assert!(moved > HOUR && moved <= HOUR + HOUR / 100 + SECOND / 100, "{moved:?}");
        bench.pass(100 * HOUR);
        assert!(bench.differs_us() < 1_000, "{} us in the end", bench.differs_us());
    }

    #[test]
    fn a_wall_clock_that_jumps_back_slows_it_down_and_never_turns_it_back() {
        let bench = Bench::new();
        bench.wall.step_back(60 * SECOND);
        let moved = bench.pass(HOUR);
        assert!(moved < HOUR && moved + HOUR / 99 >= HOUR, "{moved:?}");
        bench.pass(HOUR);
        assert!(bench.differs_us() < 1_000, "{} us in the end", bench.differs_us());
    }

    proptest! {
        #[test]
        fn it_never_goes_back_and_never_runs_more_than_one_part_in_a_hundred_fast(
            steps in prop::collection::vec(
                (0u64..3_000_000, prop::bool::weighted(0.05), -10_000_000i64..10_000_000),
                1..300,
            ),
        ) {
            let bench = Bench::new();
            let (began, mut told) = (bench.clock.now(), bench.clock.now());
            let (mut counted_us, mut most_us) = (24 * 3_600_000_000, 10_000);
            for (by_us, restarts, wall_us) in steps {
                // A counter restarts while the machine sleeps, so restarts are at least seconds apart.
                if restarts && counted_us > 4_000_000 {
                    bench.counter.decrement(counted_us * 1_000);
                    counted_us = 0;
                    most_us += CHECK_EVERY_US;
                }
                bench.counter.increment(by_us * 1_000);
                bench.wall.set(Micros::new(bench.wall.now().get().saturating_add_signed(wall_us)));
                (counted_us, most_us) = (counted_us + by_us, most_us + by_us + by_us / 100);
                let now = bench.clock.now();
                prop_assert!(now >= told, "{now:?} after {told:?}");
                prop_assert!(now.since_us(began) <= most_us, "{now:?} is beyond {most_us} us");
                told = now;
            }
        }
    }
}
