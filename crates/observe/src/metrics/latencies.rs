//! How long recent calls to the store took, in a histogram whose buckets are a fifth apart.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Four buckets to each doubling, from one microsecond to a minute.
pub(crate) const BUCKETS: usize = 27 * 4;
/// The number of seconds that the percentiles cover.
const WINDOW: usize = 30;

pub(crate) type BucketCounts = [u64; BUCKETS];

/// Percentiles of the store's latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LatencyPercentiles {
    /// The number of calls in the percentiles.
    pub calls: u64,
    /// Half of the calls took no longer.
    pub p50_us: u64,
    /// Nine of ten calls took no longer.
    pub p90_us: u64,
    /// Ninety-nine of a hundred calls took no longer.
    pub p99_us: u64,
}

/// The histogram that calls are recorded in.
#[derive(Debug)]
pub(crate) struct Latencies {
    counts: Box<[AtomicU64]>,
}

/// The last seconds of the histogram.
#[derive(Debug)]
pub(crate) struct RecentLatencies {
    seen: Box<BucketCounts>,
    seconds: VecDeque<Box<BucketCounts>>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn record(&self, us: u64) {
        self.counts[bucket(us)].fetch_add(1, Ordering::Relaxed);
    }
}

impl RecentLatencies {
    pub(crate) fn new() -> Self {
        Self { seen: Box::new([0; BUCKETS]), seconds: VecDeque::with_capacity(WINDOW) }
    }

    /// Ends a second: takes the calls that were recorded since the last tick, and returns them.
    pub(crate) fn tick(&mut self, latencies: &Latencies) -> &BucketCounts {
        if self.seconds.len() == WINDOW {
            self.seconds.pop_front();
        }
        let mut second = Box::new([0; BUCKETS]);
        for ((count, seen), new) in latencies.counts.iter().zip(self.seen.iter_mut()).zip(second.iter_mut()) {
            let now = count.load(Ordering::Relaxed);
            *new = now - *seen;
            *seen = now;
        }
        self.seconds.push_back(second);
        &self.seconds[self.seconds.len() - 1]
    }

    pub(crate) fn percentiles(&self) -> LatencyPercentiles {
        let mut sum = [0; BUCKETS];
        for second in &self.seconds {
            for (sum, count) in sum.iter_mut().zip(second.iter()) {
                *sum += count;
            }
        }
        LatencyPercentiles::of(&sum)
    }
}

impl LatencyPercentiles {
    pub(crate) fn of(counts: &BucketCounts) -> Self {
        let calls = counts.iter().sum();
        let at = |share: f64| percentile(counts, calls, share);
        Self { calls, p50_us: at(0.5), p90_us: at(0.9), p99_us: at(0.99) }
    }
}

/// The upper bound of the bucket in which this share of the calls is reached.
fn percentile(counts: &BucketCounts, calls: u64, share: f64) -> u64 {
    let wanted = (calls as f64 * share).ceil() as u64;
    let mut passed = 0;
    let found = counts.iter().position(|count| {
        passed += count;
        passed >= wanted.max(1)
    });
    found.map_or(0, upper_bound_us)
}

/// The bucket of a duration. Each doubling has four buckets, chosen by the two bits below the highest one.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let doubling = us.ilog2() as usize;
    let quarter =
        if doubling >= 2 { (us >> (doubling - 2)) as usize & 3 } else { (us as usize) << (2 - doubling) & 3 };
    (doubling * 4 + quarter).min(BUCKETS - 1)
}

fn upper_bound_us(bucket: usize) -> u64 {
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    ((quarter + 5) << doubling).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_within_a_quarter_of_the_truth() {
        let (latencies, mut recent) = (Latencies::new(), RecentLatencies::new());
        (1..=10_000).for_each(|us| latencies.record(us));
        recent.tick(&latencies);
        let LatencyPercentiles { calls, p50_us, p90_us, p99_us } = recent.percentiles();
        assert_eq!(calls, 10_000);
        for (shown, truth) in [(p50_us, 5_000), (p90_us, 9_000), (p99_us, 9_900)] {
            assert!((truth..=truth * 5 / 4).contains(&shown), "{shown} for {truth}");
        }
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let (latencies, mut recent) = (Latencies::new(), RecentLatencies::new());
        latencies.record(1_000_000);
        for _ in 0..=WINDOW {
            recent.tick(&latencies);
        }
        assert_eq!(recent.percentiles(), LatencyPercentiles::default());
    }

    #[test]
    fn the_longest_call_has_a_bucket() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(upper_bound_us(bucket(3_000)) >= 3_000);
    }
}
