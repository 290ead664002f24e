//! The time of one operation, by the two clocks that buckets follow.

use spile_core::{Clock, Micros};

/// The time of one operation.
///
/// A step of the wall clock must not refill a rate, and a quota must follow it. So entries keep the moments of rates and permits in
/// steady time and the ends of windows in wall time. Outside of the table all moments are in wall time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Monotonic time, anchored to the wall clock when the clock was made.
    pub(crate) steady: Micros,
    /// The time that the wall clock shows.
    pub(crate) wall: Micros,
}

impl Now {
    #[inline]
    pub(crate) fn of(clock: &impl Clock) -> Self {
        let steady = clock.now();
        Self { steady, wall: Micros::new(steady.get().wrapping_add_signed(clock.wall_ahead_us())) }
    }

    /// Steady time as wall time.
    #[inline]
    pub(crate) const fn to_wall(self, steady: Micros) -> Micros {
        Micros::new(steady.get().wrapping_add(self.wall.get()).wrapping_sub(self.steady.get()))
    }

    /// Wall time as steady time.
    #[inline]
    pub(crate) const fn to_steady(self, wall: Micros) -> Micros {
        Micros::new(wall.get().wrapping_add(self.steady.get()).wrapping_sub(self.wall.get()))
    }

    /// A moment at which both clocks agree.
    #[cfg(test)]
    pub(crate) const fn at(moment: Micros) -> Self {
        Self { steady: moment, wall: moment }
    }
}
