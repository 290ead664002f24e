//! The room for permits: one bound for all shards of a store.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use spile_core::Micros;

/// The shortest time between two sweeps of a full store. A denied caller is asked to retry after a second, and is then admitted if
/// permits have expired meanwhile.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// Counts the permits of all shards, including expired ones.
#[derive(Debug)]
pub(crate) struct PermitRoom {
    taken: AtomicUsize,
    most: usize,
    /// A full store is not swept before this time.
    sweep_at: AtomicU64,
}

impl PermitRoom {
    /// Room for `most` permits.
    pub(crate) const fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most, sweep_at: AtomicU64::new(0) }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.most
    }

    pub(crate) fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn free(&self, permits: usize) {
        self.taken.fetch_sub(permits, Ordering::Relaxed);
    }

    /// True if the caller has to sweep all shards. Only one caller per pause has to, so that many denials cost few sweeps.
    pub(crate) fn is_sweep_due(&self, now: Micros) -> bool {
        let sweep_at = self.sweep_at.load(Ordering::Relaxed);
        let next = now + SWEEP_PAUSE;
        // A time further ahead was written before the clock stepped back.
        let is_due = !(now.get() + 1..=next.get()).contains(&sweep_at);
        let replaced =
            || self.sweep_at.compare_exchange(sweep_at, next.get(), Ordering::Relaxed, Ordering::Relaxed);
        is_due && replaced().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_in_each_pause_has_to_sweep_also_after_the_clock_stepped_back() {
        let room = PermitRoom::new(1);
        let sweeps = |at_s: u64| (0..3).filter(|_| room.is_sweep_due(Micros::from_secs(at_s))).count();
        assert_eq!([0, 1, 100, 101].map(sweeps), [1, 1, 1, 1]);
        assert!(!room.is_sweep_due(Micros::new(101_999_999)));
        assert_eq!(sweeps(50), 1, "the clock stepped back");
    }
}
