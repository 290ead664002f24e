//! One bucket in the table: 40 bytes, whatever the length of its key.

use spile_core::{Bucket, Limit, MicroTokens, Micros};

use crate::table::fingerprint::Fingerprint;

/// A bucket, its fingerprint, and what is needed to tell how full it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEntry {
    fingerprint: Fingerprint,
    held: i64,
    written_at: u64,
    /// The largest capacity and the slowest rate (tokens per second, rounded down) of the limits that used the bucket
    /// since it was last full. They tell when it is full again, which must never be too early: a tightened limit would
    /// otherwise give its keys a full bucket.
    capacity: u32,
    slowest_rate: f32,
}

impl BucketEntry {
    pub(crate) const EMPTY: Self =
        Self { fingerprint: Fingerprint::NONE, held: 0, written_at: 0, capacity: 0, slowest_rate: 0.0 };

    pub(crate) fn new(fingerprint: Fingerprint, bucket: Bucket, limit: &Limit) -> Self {
        let mut entry = Self { fingerprint, capacity: limit.capacity(), ..Self::EMPTY };
        entry.slowest_rate = rounded_down(limit.rate());
        entry.put(bucket);
        entry
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.fingerprint.is_none()
    }

    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(crate) const fn bucket(&self) -> Bucket {
        Bucket::new(MicroTokens::new(self.held), Micros::new(self.written_at))
    }

    pub(crate) const fn written_at(&self) -> u64 {
        self.written_at
    }

    #[inline]
    pub(crate) fn write(&mut self, bucket: Bucket, limit: &Limit) {
        let rate = rounded_down(limit.rate());
        if self.capacity != limit.capacity() || self.slowest_rate.to_bits() != rate.to_bits() {
            self.judge_by(limit, bucket.written_at());
        }
        self.put(bucket);
    }

    /// Notes that a limit denied. Changes the entry only if the limit refills more slowly than those before it.
    #[inline]
    pub(crate) fn denied_by(&mut self, limit: &Limit) {
        if limit.rate() < f64::from(self.slowest_rate) || limit.capacity() > self.capacity {
            self.slow_down_to(limit);
        }
    }

    /// Uses another limit to tell when the bucket is full; the slower of both while the bucket is not full.
    #[cold]
    fn judge_by(&mut self, limit: &Limit, now: Micros) {
        if self.level(now) >= 1.0 {
            self.capacity = limit.capacity();
            self.slowest_rate = rounded_down(limit.rate());
        } else {
            self.slow_down_to(limit);
        }
    }

    #[cold]
    fn slow_down_to(&mut self, limit: &Limit) {
        self.capacity = self.capacity.max(limit.capacity());
        self.slowest_rate = self.slowest_rate.min(rounded_down(limit.rate()));
    }

    #[inline]
    fn put(&mut self, bucket: Bucket) {
        self.held = bucket.held().get();
        self.written_at = bucket.written_at().get();
    }

    /// How full it is, from 0 to 1. At 1 the entry can be dropped without any effect.
    pub(crate) fn level(&self, now: Micros) -> f64 {
        let elapsed_us = now.since_us(Micros::new(self.written_at)) as f64;
        let there = self.held as f64 + (elapsed_us * f64::from(self.slowest_rate)).floor();
        (there / MicroTokens::from_tokens(self.capacity).get() as f64).min(1.0)
    }
}

/// The saved form: five little-endian words.
impl BucketEntry {
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let last = u64::from(self.capacity) | u64::from(self.slowest_rate.to_bits()) << 32;
        let held = self.held.cast_unsigned();
        let words = [self.fingerprint.place, self.fingerprint.check, held, self.written_at, last];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` if the bytes are not a possible bucket.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut words = [0; 5];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*place);
        }
        let [place, check, held, written_at, last] = words;
        let (capacity, slowest_rate) = (last as u32, f32::from_bits((last >> 32) as u32));
        let fingerprint = Fingerprint { place, check };
        let held = held.cast_signed();
        let possible = -MicroTokens::from_tokens(Limit::MAX_TOKENS).get()
            ..=MicroTokens::from_tokens(Limit::MAX_TOKENS).get();
        let sound = !fingerprint.is_none() && capacity > 0 && slowest_rate.is_finite() && slowest_rate >= 0.0;
        (sound && possible.contains(&held)).then_some(Self {
            fingerprint,
            held,
            written_at,
            capacity,
            slowest_rate,
        })
    }

    /// The same bucket by another clock, which shows `to` when the old one shows `from`.
    #[must_use]
    pub(crate) const fn by_another_clock(mut self, from: Micros, to: Micros) -> Self {
        self.written_at = self.written_at.saturating_add(to.since_us(from)).saturating_sub(from.since_us(to));
        self
    }
}

fn rounded_down(rate: f64) -> f32 {
    let near = rate as f32;
    if f64::from(near) > rate { near.next_down() } else { near }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spile_core::{Cost, LimitBuilder};

    use super::*;

    fn limits() -> [Limit; 5] {
        let built = |limit: LimitBuilder| limit.build().expect("in bounds");
        [
            built(Limit::per_second(10)),
            built(Limit::per_day(10)),
            built(Limit::per_minute(7).burst(3)),
            built(Limit::per_second(1_000).burst(50)),
            built(Limit::per_hour(100).burst(50)),
        ]
    }

    proptest! {
        /// Once a bucket counts as full, it is full for each limit that used it since it was last full.
        #[test]
        fn a_bucket_is_called_full_only_when_every_limit_that_named_it_has_filled_it(
            asked in prop::collection::vec((0usize..5, 1u64..4, 0u64..30_000_000), 1..40),
            later_us in 0u64..200_000_000_000,
        ) {
            let limits = limits();
            let mut now = Micros::from_secs(1);
            let fingerprint = Fingerprint { place: 1, check: 1 };
            let drained = Bucket::new(MicroTokens::new(0), now);
            let mut entry = BucketEntry::new(fingerprint, drained, &limits[asked[0].0]);
            let mut named = vec![asked[0].0];
            for (limit, cost, pause_us) in asked {
                now = now.plus_us(pause_us);
                if entry.level(now) >= 1.0 {
                    named.clear();
                }
                named.push(limit);
                let (limit, cost) = (&limits[limit], Cost::new(cost).expect("in bounds"));
                match entry.bucket().spend(limit, cost, now) {
                    Some(spent) => entry.write(spent, limit),
                    None => entry.denied_by(limit),
                }
                for now in [now, now.plus_us(later_us)] {
                    for &limit in named.iter().filter(|_| entry.level(now) >= 1.0) {
                        let limit = &limits[limit];
                        prop_assert_eq!(entry.bucket().available(limit, now), limit.capacity_micro());
                    }
                }
            }
        }
    }

    #[test]
    fn a_bucket_that_was_full_is_judged_by_the_limit_that_spends_from_it_alone() {
        let [fast, slow, ..] = limits();
        let now = Micros::from_secs(1);
        let drained = Bucket::new(MicroTokens::new(0), now);
        let mut entry = BucketEntry::new(Fingerprint { place: 1, check: 1 }, drained, &slow);
        let full = now.plus_us(86_401_000_000);
        let spent = entry.bucket().spend(&fast, Cost::ONE, full).expect("it is full");
        entry.write(spent, &fast);
        assert!(entry.level(full.plus_us(1_000_000)) >= 1.0, "a tenth of a second fills it");
    }
}
