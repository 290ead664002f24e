//! Samples decisions: all of them while they are few, some of them when they are many.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::Micros;

/// The size of a burst in which every decision is sampled.
const BURST: u64 = 1_000;

/// A small rate limiter by virtual scheduling. Only the thread that owns it writes to it, so plain loads and
/// stores are enough.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Twice the mean gap between two samples after a burst. Gaps are drawn at random up to it: with fixed gaps, callers that
    /// take turns would be sampled always or never.
    longest_us: u64,
    /// When the next decision may be sampled: at most the longest gap ahead of now, and behind now by what is left of the
    /// burst.
    next_us: AtomicU64,
    skipped: AtomicU64,
    /// The state of the random gaps. It starts the same everywhere, so that a simulation repeats.
    random: AtomicU64,
}

impl Sampler {
    pub(crate) const fn every(gap_us: u64) -> Self {
        Self {
            longest_us: 2 * gap_us,
            next_us: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            random: AtomicU64::new(0),
        }
    }

    /// True if this decision is not sampled; a later sample stands for it.
    #[inline]
    pub(crate) fn skips(&self, now: Micros) -> bool {
        // A value further ahead than the longest gap means that the clock has stepped back. A value that is not ahead wraps
        // around and is too large as well, so one comparison covers both.
        let ahead = self.next_us.load(Ordering::Relaxed).wrapping_sub(now.get());
        let skips = ahead.wrapping_sub(1) < self.longest_us;
        if skips {
            self.skipped.store(self.skipped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        skips
    }

    /// How many decisions this sample stands for. `None` if it is not sampled.
    pub(crate) fn pick(&self, now: Micros) -> Option<u64> {
        (!self.skips(now)).then(|| self.take(now))
    }

    fn take(&self, now: Micros) -> u64 {
        let (now, burst_us) = (now.get(), BURST * self.longest_us / 2);
        let next = self.next_us.load(Ordering::Relaxed);
        let behind = now.checked_sub(next).is_none_or(|behind_us| behind_us >= burst_us);
        let from = if behind { now.saturating_sub(burst_us) } else { next };
        let in_burst = from + self.longest_us <= now;
        let gap_us = if in_burst { self.longest_us / 2 } else { 1 + self.random() % self.longest_us };
        self.next_us.store(from + gap_us, Ordering::Relaxed);
        let skipped = self.skipped.load(Ordering::Relaxed);
        self.skipped.store(0, Ordering::Relaxed);
        // Decisions that were skipped before a pause belong to a load that is over, not to the first caller after it.
        if behind { 1 } else { skipped + 1 }
    }

    /// A random number, by `SplitMix64`.
    fn random(&self) -> u64 {
        let state = self.random.load(Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.store(state, Ordering::Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_at_once_are_all_looked_at() {
        // Many times, so that gaps drawn at random within the burst would show.
        for _ in 0..50 {
            let sampler = Sampler::every(100);
            let now = Micros::from_secs(1);
            assert!((0..1_000).all(|_| sampler.pick(now) == Some(1)));
        }
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
    fn callers_who_come_in_turn_are_seen_alike() {
        let sampler = Sampler::every(100);
        let mut seen = [0_u64; 10];
        for decision in 0..1_000_000u64 {
            if let Some(weight) = sampler.pick(Micros::from_secs(1).plus_us(10 * decision)) {
                seen[(decision % 10) as usize] += weight;
            }
        }
        assert!(seen.iter().all(|weight| (90_000..=110_000).contains(weight)), "{seen:?}");
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

    #[test]
    fn a_clock_that_steps_back_by_more_than_the_longest_gap_is_noticed() {
        let sampler = Sampler::every(100);
        sampler.pick(Micros::from_secs(1));
        // The next one may be looked at one gap after the start of the burst, which is a thousand gaps ago.
        let next_us = 1_000_000 - 1_000 * 100 + 100;
        assert_eq!(sampler.pick(Micros::default().plus_us(next_us - 200)), None, "the longest gap ahead");
        assert_eq!(sampler.pick(Micros::default().plus_us(next_us - 201)), Some(1));
    }
}
