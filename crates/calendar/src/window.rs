//! A stretch of time within which a quota counts.

use spile_core::Micros;

/// The moments from `start` until just before `end`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Window {
    /// The first moment of the window.
    pub start: Micros,
    /// The first moment after the window, which is the start of the next one.
    pub end: Micros,
}

impl Window {
    /// True from `start` until just before `end`.
    pub const fn contains(&self, moment: Micros) -> bool {
        self.start.get() <= moment.get() && moment.get() < self.end.get()
    }

    /// Microseconds from start to end. Windows of one calendar differ in length.
    pub const fn length_us(&self) -> u64 {
        self.end.since_us(self.start)
    }
}
