//! One bucket in the table: 40 bytes, whatever the length of its key.

use spile_core::{Bucket, Limit, MicroTokens, Micros};

use crate::table::fingerprint::Fingerprint;

/// A bucket, its fingerprint, and what is needed to tell how full it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEntry {
    fingerprint: Fingerprint,
    held: i64,
    written_at: u64,
    /// The largest capacity and the slowest refill of the limits that used the bucket since it was last full. They tell when it
    /// is full again, which must never be too early: a tightened limit would otherwise give its keys a full bucket.
    capacity: u32,
    slowest: Refill,
}

impl BucketEntry {
    pub(crate) const EMPTY: Self =
        Self { fingerprint: Fingerprint::NONE, held: 0, written_at: 0, capacity: 0, slowest: Refill(0.0) };

    pub(crate) fn new(fingerprint: Fingerprint, bucket: Bucket, limit: &Limit) -> Self {
        let mut entry = Self { fingerprint, capacity: limit.capacity(), ..Self::EMPTY };
        entry.slowest = Refill::of(limit);
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
        if self.capacity != limit.capacity() || self.slowest != Refill::of(limit) {
            self.judge_by(limit, bucket.written_at());
        }
        self.put(bucket);
    }

    /// Notes that a limit denied. Changes the entry only if the limit refills more slowly than those before it.
    #[inline]
    pub(crate) fn denied_by(&mut self, limit: &Limit) {
        let slowest = self.slowest.slower(Refill::of(limit), self.capacity);
        if slowest != self.slowest || limit.capacity() > self.capacity {
            self.slow_down_to(limit);
        }
    }

    /// Uses another limit to tell when the bucket is full; the slower of both while the bucket is not full.
    #[cold]
    fn judge_by(&mut self, limit: &Limit, now: Micros) {
        if self.level(now) >= 1.0 {
            self.capacity = limit.capacity();
            self.slowest = Refill::of(limit);
        } else {
            self.slow_down_to(limit);
        }
    }

    #[cold]
    fn slow_down_to(&mut self, limit: &Limit) {
        self.capacity = self.capacity.max(limit.capacity());
        self.slowest = self.slowest.slower(Refill::of(limit), self.capacity);
    }

    #[inline]
    fn put(&mut self, bucket: Bucket) {
        self.held = bucket.held().get();
        self.written_at = bucket.written_at().get();
    }

    /// How full it is, from 0 to 1. At 1 the entry can be dropped without any effect.
    pub(crate) fn level(&self, now: Micros) -> f64 {
        let elapsed_us = now.since_us(Micros::new(self.written_at)) as f64;
        let capacity = MicroTokens::from_tokens(self.capacity);
        let held = self.bucket().held_of(capacity).get() as f64;
        let level = |there: f64| there / capacity.get() as f64;
        match self.slowest.all_at_once_after_us() {
            None => level(held + (elapsed_us * f64::from(self.slowest.0)).floor()).min(1.0),
            Some(us) if elapsed_us >= us => 1.0,
            Some(_) => level(held).min(NOT_FULL),
        }
    }
}

/// The saved form: five little-endian words.
impl BucketEntry {
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let last = u64::from(self.capacity) | u64::from(self.slowest.0.to_bits()) << 32;
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
        let (capacity, slowest) = (last as u32, f32::from_bits((last >> 32) as u32));
        let fingerprint = Fingerprint { place, check };
        let held = held.cast_signed();
        let sound = !fingerprint.is_none() && capacity > 0 && slowest.is_finite();
        (sound && Bucket::POSSIBLE.contains(&held)).then_some(Self {
            fingerprint,
            held,
            written_at,
            capacity,
            slowest: Refill(slowest),
        })
    }

    /// The same bucket by another clock, which shows `to` when the old one shows `from`.
    #[must_use]
    pub(crate) const fn by_another_clock(mut self, from: Micros, to: Micros) -> Self {
        self.written_at = self.written_at.saturating_add(to.since_us(from)).saturating_sub(from.since_us(to));
        self
    }
}

/// The level of a bucket that is nearly full.
const NOT_FULL: f64 = 1.0 - f64::EPSILON;

/// How tokens come back. Not below zero: tokens per second, rounded down. Below zero: all at once, after so many seconds at the
/// most, as those of a quota do.
#[derive(Clone, Copy, Debug)]
struct Refill(f32);

impl Refill {
    #[inline]
    fn of(limit: &Limit) -> Self {
        if limit.windows().is_some() { Self::of_quota(limit) } else { Self(rounded_down(limit.rate())) }
    }

    #[cold]
    fn of_quota(limit: &Limit) -> Self {
        Self(rounded_down(-limit.fill_time().as_secs_f64()))
    }

    /// The slower of both for a bucket of so many tokens.
    #[inline]
    fn slower(self, other: Self, capacity: u32) -> Self {
        if self.0 >= 0.0 && other.0 >= 0.0 { Self(self.0.min(other.0)) } else { self.later(other, capacity) }
    }

    /// The later of both, if one of them brings all tokens at once. Twice the capacity covers a debt.
    #[cold]
    fn later(self, other: Self, capacity: u32) -> Self {
        let after = |refill: Self| if refill.0 < 0.0 { -refill.0 } else { 2.0 * capacity as f32 / refill.0 };
        Self(-after(self).max(after(other)).min(f32::MAX))
    }

    fn all_at_once_after_us(self) -> Option<f64> {
        (self.0 < 0.0).then(|| -f64::from(self.0) * 1e6)
    }
}

impl PartialEq for Refill {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

fn rounded_down(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) > number { near.next_down() } else { near }
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
