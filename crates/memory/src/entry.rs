//! One bucket as the table keeps it: 40 bytes, whatever the length of its key.

use spile_core::{Bucket, Limit, MicroTokens, Micros};

use crate::fingerprint::Fingerprint;

/// A bucket, the fingerprint it is found by, and what it takes to see how full it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    fingerprint: Fingerprint,
    held: u64,
    written_at: u64,
    capacity: u32,
    /// Tokens per second, rounded down: it judges whether the bucket is full again, and must never say so
    /// early.
    slowest_rate: f32,
}

impl Entry {
    pub(crate) const EMPTY: Self =
        Self { fingerprint: Fingerprint::NONE, held: 0, written_at: 0, capacity: 0, slowest_rate: 0.0 };

    pub(crate) fn new(fingerprint: Fingerprint, bucket: Bucket, limit: &Limit) -> Self {
        let mut entry = Self { fingerprint, ..Self::EMPTY };
        entry.write(bucket, limit);
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

    pub(crate) fn write(&mut self, bucket: Bucket, limit: &Limit) {
        self.held = bucket.held().get();
        self.written_at = bucket.written_at().get();
        self.capacity = limit.capacity();
        self.slowest_rate = rounded_down(limit.rate());
    }

    /// How full it is, from 0 to 1. One means that forgetting it changes nothing.
    pub(crate) fn level(&self, now: Micros) -> f64 {
        let elapsed_us = now.since_us(Micros::new(self.written_at)) as f64;
        let there = self.held as f64 + (elapsed_us * f64::from(self.slowest_rate)).floor();
        (there / MicroTokens::from_tokens(self.capacity).get() as f64).min(1.0)
    }
}

/// As it is saved: five words, the lowest byte first.
impl Entry {
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let last = u64::from(self.capacity) | u64::from(self.slowest_rate.to_bits()) << 32;
        let words = [self.fingerprint.place, self.fingerprint.check, self.held, self.written_at, last];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Nothing where no bucket can ever have been like this.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut words = [0; 5];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*place);
        }
        let [place, check, held, written_at, last] = words;
        let (capacity, slowest_rate) = (last as u32, f32::from_bits((last >> 32) as u32));
        let fingerprint = Fingerprint { place, check };
        let sound = !fingerprint.is_none() && capacity > 0 && slowest_rate.is_finite() && slowest_rate >= 0.0;
        sound.then_some(Self { fingerprint, held, written_at, capacity, slowest_rate })
    }

    /// The same bucket by a clock that shows `to` where this one shows `from`.
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
