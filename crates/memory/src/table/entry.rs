//! One bucket in the table: 40 bytes for a key of any length.

use spile_core::{Amount, Bucket, Limit, Micros};

use crate::table::fingerprint::Fingerprint;
use crate::table::now::Now;

/// A bucket, its fingerprint, and the numbers that determine how full it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEntry {
    fingerprint: Fingerprint,
    amount: i64,
    moment: u64,
    /// The largest capacity and the slowest refill of the limits that used the bucket since it was last full. They determine when
    /// it is full again, which must never be too early: a tightened limit would otherwise give its keys a full bucket.
    most: Fill,
}

/// The capacity of a limit in micro-tokens, rounded up, and 32 bits whose meaning depends on the shape.
///
/// For a rate, they are its refill in tokens per second, rounded down. A quota is full when its window has ended: for its bucket,
/// they are the milliseconds of the last write, which wrap around after 49 days.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fill {
    capacity: f32,
    bits: u32,
}

impl BucketEntry {
    pub(crate) const EMPTY: Self =
        Self { fingerprint: Fingerprint::NONE, amount: 0, moment: 0, most: Fill { capacity: 0.0, bits: 0 } };

    pub(crate) fn new(fingerprint: Fingerprint, bucket: Bucket, limit: &Limit, now: Now) -> Self {
        let mut entry = Self { fingerprint, most: Fill::of(limit, now), ..Self::EMPTY };
        entry.put(bucket);
        entry
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.fingerprint.is_none()
    }

    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The bucket, in its own time.
    #[inline]
    pub(crate) const fn bucket(&self) -> Bucket {
        Bucket::new(Amount::from_micro(self.amount), Micros::new(self.moment))
    }

    /// The time of the last write. For a quota that was written more than 49 days ago it may be later.
    pub(crate) const fn written_at(&self, now: Now) -> u64 {
        if self.fingerprint.is_of_quota() {
            let age_ms = millis(now.steady).wrapping_sub(self.most.bits);
            return now.steady.get().saturating_sub(age_ms as u64 * 1_000);
        }
        self.moment
    }

    #[inline]
    pub(crate) fn write(&mut self, bucket: Bucket, limit: &Limit, now: Now) {
        let fill = Fill::of(limit, now);
        if self.most != fill {
            self.judge_by(fill, now);
        }
        self.put(bucket);
    }

    /// Records a limit whose question wrote nothing. Changes the entry only if the limit is larger or refills more slowly than
    /// those before it.
    #[inline]
    pub(crate) fn asked_under(&mut self, limit: &Limit, now: Now) {
        let fill = Fill::of(limit, now);
        if fill != self.most {
            let most = self.slower(fill);
            let bits = if self.fingerprint.is_of_quota() { self.most.bits } else { most.bits };
            self.most = Fill { bits, ..most };
        }
    }

    /// Uses another limit to determine when the bucket is full: the slower of both, unless the bucket is full.
    #[cold]
    fn judge_by(&mut self, fill: Fill, now: Now) {
        self.most = if self.level(now) >= 1.0 { fill } else { self.slower(fill) };
    }

    /// The larger capacity, and the slower refill or the later write.
    fn slower(&self, fill: Fill) -> Fill {
        let capacity = self.most.capacity.max(fill.capacity);
        // Floats that are not negative are ordered like their bits.
        let bits = if self.fingerprint.is_of_quota() { fill.bits } else { self.most.bits.min(fill.bits) };
        Fill { capacity, bits }
    }

    #[inline]
    const fn put(&mut self, bucket: Bucket) {
        self.amount = bucket.amount().micro();
        self.moment = bucket.moment().get();
    }

    /// How full it is, at most 1; negative in debt. At 1 the entry can be dropped without any effect.
    pub(crate) fn level(&self, now: Now) -> f64 {
        let (capacity, amount) = (f64::from(self.most.capacity), self.amount as f64);
        if self.fingerprint.is_of_quota() {
            let is_over = now.wall().get() >= self.moment;
            return if is_over { 1.0 } else { ((capacity - amount) / capacity).min(NOT_FULL) };
        }
        let elapsed_us = now.steady.since_us(Micros::new(self.moment)) as f64;
        ((amount + (elapsed_us * f64::from(f32::from_bits(self.most.bits))).floor()) / capacity).min(1.0)
    }
}

/// The saved form: five little-endian words.
impl BucketEntry {
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn to_bytes(self) -> [[u8; 8]; Self::BYTES / 8] {
        let last = u64::from(self.most.capacity.to_bits()) | u64::from(self.most.bits) << 32;
        let amount = self.amount.cast_unsigned();
        [self.fingerprint.place, self.fingerprint.check, amount, self.moment, last].map(u64::to_le_bytes)
    }

    /// `None` if the bytes are not a valid bucket.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let words = bytes.as_chunks().0;
        let [place, check, amount, moment, last] = std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let (capacity, bits) = (f32::from_bits(last as u32), (last >> 32) as u32);
        let entry = Self {
            fingerprint: Fingerprint { place, check },
            amount: amount.cast_signed(),
            moment,
            most: Fill { capacity, bits },
        };
        let is_sound = entry.fingerprint.is_of_bucket()
            && (1.0..=MOST).contains(&f64::from(capacity))
            && (entry.fingerprint.is_of_quota() || bits <= f32::MAX.to_bits())
            && (entry.amount as f64).abs() <= 2.0 * MOST;
        is_sound.then_some(entry)
    }

    /// Converts to another clock, which shows `to` when the old one shows `from`. The window of a quota ends at the same moment by
    /// any clock.
    #[must_use]
    pub(crate) const fn by_another_clock(mut self, from: Micros, to: Micros) -> Self {
        if self.fingerprint.is_of_quota() {
            self.most.bits = self.most.bits.wrapping_add(millis(to)).wrapping_sub(millis(from));
        } else {
            self.moment = self.moment.saturating_add(to.since_us(from)).saturating_sub(from.since_us(to));
        }
        self
    }
}

/// The level of a bucket that is nearly full.
const NOT_FULL: f64 = 1.0 - f64::EPSILON;

/// The most micro-tokens that a limit holds, with room for rounding.
const MOST: f64 = 1.1e15;

impl Fill {
    #[inline]
    fn of(limit: &Limit, now: Now) -> Self {
        let bits = limit.rate().map_or(millis(now.steady), |rate| rounded_down(rate.per_second()).to_bits());
        Self { capacity: rounded_up(limit.capacity().micro() as f64), bits }
    }
}

/// Milliseconds, which wrap around.
#[inline]
const fn millis(moment: Micros) -> u32 {
    (moment.get() / 1_000) as u32
}

/// Rounds a positive number. The bits of positive floats are ordered as the floats are: one less is the next float below.
#[inline]
fn rounded_down(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) > number { f32::from_bits(near.to_bits() - 1) } else { near }
}

#[inline]
fn rounded_up(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) < number { near.next_up() } else { near }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spile_core::{Cost, RateBuilder, Shape};

    use super::*;

    const RATE: Fingerprint = Fingerprint { place: 1, check: Shape::RATE };

    fn limits() -> [Limit; 5] {
        let built = |limit: RateBuilder| limit.build().expect("in bounds");
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
        fn a_bucket_counts_as_full_only_when_every_limit_that_used_it_has_filled_it(
            asked in prop::collection::vec((0usize..5, 0u64..4, 0u64..30_000_000), 1..40),
            later_us in 0u64..200_000_000_000,
        ) {
            let limits = limits();
            let mut now = Now::at(Micros::from_secs(1));
            let drained = Bucket::new(Amount::ZERO, now.wall());
            let mut entry = BucketEntry::new(RATE, drained, &limits[asked[0].0], now);
            let mut used = vec![asked[0].0];
            for (limit, cost, pause_us) in asked {
                now = Now::at(now.wall().plus_us(pause_us));
                if entry.level(now) >= 1.0 {
                    used.clear();
                }
                used.push(limit);
                let (limit, cost) = (&limits[limit], Cost::new(cost).expect("in bounds"));
                match entry.bucket().spend(limit, cost, now.wall()) {
                    Some(spent) if cost > Cost::ZERO => entry.write(spent, limit, now),
                    _ => entry.asked_under(limit, now),
                }
                for now in [now, Now::at(now.wall().plus_us(later_us))] {
                    for &limit in used.iter().filter(|_| entry.level(now) >= 1.0) {
                        let limit = &limits[limit];
                        prop_assert_eq!(entry.bucket().available(limit, now.wall()), limit.capacity());
                    }
                }
            }
        }
    }

    #[test]
    fn a_bucket_that_was_full_is_judged_by_the_limit_that_spends_from_it_alone() {
        let [fast, slow, ..] = limits();
        let now = Now::at(Micros::from_secs(1));
        let drained = Bucket::new(Amount::ZERO, now.wall());
        let mut entry = BucketEntry::new(RATE, drained, &slow, now);
        let full = Now::at(now.wall().plus_us(86_401_000_000));
        let spent = entry.bucket().spend(&fast, Cost::ONE, full.wall()).expect("it is full");
        entry.write(spent, &fast, full);
        assert!(entry.level(Now::at(full.wall().plus_us(1_000_000))) >= 1.0, "a tenth of a second fills it");
    }
}
