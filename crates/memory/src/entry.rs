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

fn rounded_down(rate: f64) -> f32 {
    let near = rate as f32;
    if f64::from(near) > rate { near.next_down() } else { near }
}
