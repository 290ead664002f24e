//! Picks the decisions that are looked at closely: all of them while they are few, some of them when they are many.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::Micros;

/// Decisions that are all looked at, however fast they come.
const BURST: u64 = 1_000;

/// A small rate limit of its own, by virtual scheduling. Only the thread that owns it writes to it, so plain loads
/// and stores do.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// One decision is looked at each so often, once a burst is used up.
    gap_us: u64,
    due_us: AtomicU64,
    skipped: AtomicU64,
}

impl Sampler {
    pub(crate) const fn every(gap_us: u64) -> Self {
        Self { gap_us, due_us: AtomicU64::new(0), skipped: AtomicU64::new(0) }
    }

    /// How many decisions this one stands for, where it is to be looked at.
    #[inline]
    pub(crate) fn pick(&self, now: Micros) -> Option<u64> {
        let (now, most_ahead) = (now.get(), BURST * self.gap_us);
        let due = self.due_us.load(Ordering::Relaxed);
        let ahead = due.saturating_sub(now);
        // Further ahead than it could ever run means that the clock has stepped back.
        if ahead > most_ahead && ahead <= most_ahead + self.gap_us {
            self.skipped.store(self.skipped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return None;
        }
        let behind = ahead == 0 || ahead > most_ahead;
        self.due_us.store(if behind { now } else { due } + self.gap_us, Ordering::Relaxed);
        let skipped = self.skipped.load(Ordering::Relaxed);
        self.skipped.store(0, Ordering::Relaxed);
        // What was skipped before a pause belongs to a load that is over, not to whoever comes first after it.
        Some(if behind { 1 } else { skipped + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_at_once_are_all_looked_at() {
        let sampler = Sampler::every(100);
        let now = Micros::from_secs(1);
        assert!((0..1_000).all(|_| sampler.pick(now) == Some(1)));
    }

    #[test]
    fn under_load_the_samples_stand_for_everything() {
        let sampler = Sampler::every(100);
        let (mut stood_for, mut looked_at) = (0, 0);
        for decision in 0..1_000_000u64 {
            if let Some(weight) = sampler.pick(Micros::from_secs(1).plus_us(decision)) {
                stood_for += weight;
                looked_at += 1;
            }
        }
        assert!((990_000..=1_000_000).contains(&stood_for), "{stood_for}");
        assert!(looked_at < 12_000, "{looked_at}");
    }

    #[test]
    fn a_caller_after_a_pause_counts_once() {
        let sampler = Sampler::every(100);
        for _ in 0..5_000 {
            sampler.pick(Micros::from_secs(1));
        }
        assert_eq!(sampler.pick(Micros::from_secs(2)), Some(1));
    }

    #[test]
    fn a_clock_that_steps_back_does_not_blind_it() {
        let sampler = Sampler::every(100);
        sampler.pick(Micros::from_secs(1_000));
        assert_eq!(sampler.pick(Micros::from_secs(1)), Some(1));
    }
}
