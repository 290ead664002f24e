//! When a bucket that is nearly empty is asked for the next portion.

use spile_core::Micros;

const SHORTEST_US: u64 = 1_000;
const LONGEST_US: u64 = 50_000;

/// The pauses between the portions of a bucket that is nearly empty.
#[derive(Debug, Default)]
pub(super) struct PortionPace {
    /// No portion is asked for before then.
    pub(super) next: Micros,
    /// Zero before the first portion.
    pause_us: u64,
    /// The first moment at which a denied caller will ask again.
    promised: Micros,
}

impl PortionPace {
    /// The oldest answer of the store by which questions are denied between portions. Later ones ask again: other instances may have returned
    /// tokens since.
    pub(super) const OLDEST_US: u64 = 2 * LONGEST_US;

    /// A portion is asked for. `first_us` is the pause before the level of the bucket is known.
    pub(super) fn started(&mut self, first_us: u64, now: Micros) {
        if self.pause_us == 0 {
            self.pause_us = first_us.clamp(SHORTEST_US, LONGEST_US);
        }
        self.next = now.plus_us(self.pause_us);
        if now < self.promised {
            self.next = self.next.min(self.promised);
        }
    }

    /// A portion has come. Instances that share a bucket slow down and speed up together, until it stays just above nearly empty.
    pub(super) fn granted(&mut self, first_us: u64, is_scarce: bool, now: Micros) {
        self.started(first_us, now);
        let step = if is_scarce { 1.25 } else { 0.8 };
        self.pause_us = ((self.pause_us as f64 * step) as u64).clamp(SHORTEST_US, LONGEST_US);
        self.started(first_us, now);
    }

    /// Keeps the moment at which a denied caller will ask again free of a pause.
    pub(super) fn promise(&mut self, then: Micros, now: Micros) {
        if self.promised <= now || then < self.promised {
            self.promised = then;
        }
        self.next = self.next.min(then);
    }
}
