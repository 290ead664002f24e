//! The store's latency and failures in each second of the last two minutes and in each minute of the last day.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::failures::StorelessCounts;
use super::latencies::{BUCKETS, BucketCounts, LatencyPercentiles};

const SECONDS_KEPT: usize = 120;
const MINUTES_KEPT: usize = 24 * 60;

/// The latency and failures of this instance's store in one second or minute.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreRow {
    /// When it began, in seconds since the epoch.
    pub at: u64,
    /// How long calls took.
    #[serde(flatten)]
    pub latency: LatencyPercentiles,
    /// Decisions that were made without the store.
    #[serde(flatten)]
    pub storeless: StorelessCounts,
}

/// The rows, the oldest first, by the wall clock.
#[derive(Debug)]
pub(crate) struct StoreHistory {
    seconds: VecDeque<StoreRow>,
    minutes: VecDeque<StoreRow>,
    /// The latencies of the last minute, which its row is computed from until the minute is over.
    latencies: Box<BucketCounts>,
}

impl StoreHistory {
    pub(crate) fn new() -> Self {
        let (seconds, minutes) = (VecDeque::with_capacity(SECONDS_KEPT), VecDeque::new());
        Self { seconds, minutes, latencies: Box::new([0; BUCKETS]) }
    }

    /// Adds the second that ended at `now`.
    pub(crate) fn tick(&mut self, now: u64, latencies: &BucketCounts, storeless: StorelessCounts) {
        let second = StoreRow { at: now, latency: LatencyPercentiles::of(latencies), storeless };
        push(&mut self.seconds, second, SECONDS_KEPT);
        let minute = now - now % 60;
        // If the clock was set back, counts are added to the last minute until the clock has passed it again.
        if self.minutes.back().is_none_or(|last| last.at < minute) {
            self.latencies.fill(0);
            let (latency, storeless) = (LatencyPercentiles::default(), StorelessCounts::default());
            push(&mut self.minutes, StoreRow { at: minute, latency, storeless }, MINUTES_KEPT);
        }
        for (sum, count) in self.latencies.iter_mut().zip(latencies) {
            *sum += count;
        }
        if let Some(last) = self.minutes.back_mut() {
            last.latency = LatencyPercentiles::of(&self.latencies);
            last.storeless += storeless;
        }
    }

    pub(crate) fn seconds(&self) -> Vec<StoreRow> {
        self.seconds.iter().copied().collect()
    }

    pub(crate) fn minutes(&self) -> Vec<StoreRow> {
        self.minutes.iter().copied().collect()
    }
}

fn push(rows: &mut VecDeque<StoreRow>, row: StoreRow, kept: usize) {
    if rows.len() == kept {
        rows.pop_front();
    }
    rows.push_back(row);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: StorelessCounts = StorelessCounts { passed: 2, refused: 0, local: 0 };

    #[test]
    fn a_minute_sums_its_seconds() {
        let mut history = StoreHistory::new();
        let mut calls = [0; BUCKETS];
        calls[40] = 3;
        for second in 100..=180 {
            history.tick(second, &calls, PASSED);
        }
        let shown: Vec<_> =
            history.minutes().iter().map(|row| (row.at, row.latency.calls, row.storeless.passed)).collect();
        assert_eq!(shown, [(60, 60, 40), (120, 180, 120), (180, 3, 2)]);
    }

    #[test]
    fn two_minutes_of_seconds_and_a_day_of_minutes_are_kept() {
        let mut history = StoreHistory::new();
        for minute in 0..2 * MINUTES_KEPT as u64 {
            history.tick(minute * 60, &[0; BUCKETS], StorelessCounts::default());
        }
        assert_eq!((history.seconds().len(), history.minutes().len()), (SECONDS_KEPT, MINUTES_KEPT));
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_the_minutes_in_order() {
        let mut history = StoreHistory::new();
        for second in [600, 60, 540, 660] {
            history.tick(second, &[0; BUCKETS], PASSED);
        }
        let shown: Vec<_> = history.minutes().iter().map(|row| (row.at, row.storeless.passed)).collect();
        assert_eq!(shown, [(600, 6), (660, 2)]);
    }
}
