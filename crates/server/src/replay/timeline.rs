//! Requests per interval, in bounded memory: the longer the log, the longer the intervals.

use std::time::Duration;

use serde::Serialize;
use spile_core::Micros;

/// The most intervals that a timeline has.
const MOST: usize = 300;
/// The lengths of intervals, in seconds. Each is a multiple of the one before it, so that intervals can be merged.
const LENGTHS_S: [u64; 16] = [
    1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_419_200, 29_030_400,
];

/// The outcomes of the requests of one interval.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IntervalCounts {
    pub(super) allowed: u64,
    /// Denied by a limit.
    pub(super) limited: u64,
    /// Let through although a rule in shadow mode would have denied.
    pub(super) would_limit: u64,
    /// Refused regardless of the buckets.
    pub(super) refused: u64,
}

impl IntervalCounts {
    pub(super) const fn total(&self) -> u64 {
        self.allowed + self.limited + self.would_limit + self.refused
    }

    fn add(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.limited += other.limited;
        self.would_limit += other.would_limit;
        self.refused += other.refused;
    }
}

/// Several series over the same intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// The index of the length that intervals have.
    length: usize,
    /// The first interval, in intervals since the epoch.
    first: Option<u64>,
    series: Vec<Vec<IntervalCounts>>,
}

impl Timeline {
    /// The counts of a series at this time. Times never go back.
    pub(super) fn at(&mut self, series: usize, time: Micros) -> &mut IntervalCounts {
        let seconds = time.get() / 1_000_000;
        let mut index = self.index(seconds);
        while index >= MOST && self.length + 1 < LENGTHS_S.len() {
            self.lengthen();
            index = self.index(seconds);
        }
        let index = index.min(MOST - 1);
        if self.series.len() <= series {
            self.series.resize_with(series + 1, Vec::new);
        }
        let counts = &mut self.series[series];
        if counts.len() <= index {
            counts.resize(index + 1, IntervalCounts::default());
        }
        &mut counts[index]
    }

    /// The length of an interval.
    pub(super) const fn interval(&self) -> Duration {
        Duration::from_secs(LENGTHS_S[self.length])
    }

    /// When the first interval starts.
    pub(super) fn start(&self) -> Micros {
        Micros::from_secs(self.first.unwrap_or(0) * LENGTHS_S[self.length])
    }

    /// The counts of a series, one for each interval up to its last request.
    pub(super) fn series(&self, series: usize) -> &[IntervalCounts] {
        self.series.get(series).map_or(&[], Vec::as_slice)
    }

    fn index(&mut self, seconds: u64) -> usize {
        let interval = seconds / LENGTHS_S[self.length];
        let first = *self.first.get_or_insert(interval);
        usize::try_from(interval.saturating_sub(first)).unwrap_or(usize::MAX)
    }

    /// Merges intervals into longer ones.
    fn lengthen(&mut self) {
        let ratio = LENGTHS_S[self.length + 1] / LENGTHS_S[self.length];
        let first = self.first.unwrap_or(0);
        for series in &mut self.series {
            let mut merged: Vec<IntervalCounts> = Vec::new();
            for (index, counts) in series.iter().enumerate() {
                let at = ((first + index as u64) / ratio - first / ratio) as usize;
                merged.resize(merged.len().max(at + 1), IntervalCounts::default());
                merged[at].add(counts);
            }
            *series = merged;
        }
        self.first = Some(first / ratio);
        self.length += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_length_is_a_multiple_of_the_one_before() {
        for pair in LENGTHS_S.windows(2) {
            assert!(pair[1] % pair[0] == 0, "{pair:?}");
        }
    }

    proptest! {
        #[test]
        fn no_request_is_lost_and_each_is_in_its_interval(
            start in 0_u64..4_000_000_000,
            gaps in prop::collection::vec((0_u64..100_000, 0_usize..3), 1..200),
        ) {
            let (mut timeline, mut time, mut times) = (Timeline::default(), start, Vec::new());
            for (gap, series) in gaps {
                time += gap;
                timeline.at(series, Micros::from_secs(time)).allowed += 1;
                times.push((time, series));
            }
            prop_assert!(timeline.series.iter().all(|series| series.len() <= MOST));
            let length = timeline.interval().as_secs();
            for series in 0..3 {
                for (index, counts) in timeline.series(series).iter().enumerate() {
                    let from = timeline.start().get() / 1_000_000 + index as u64 * length;
                    let there = |(time, own): &&(u64, usize)| *own == series && (from..from + length).contains(time);
                    prop_assert_eq!(counts.total(), times.iter().filter(there).count() as u64);
                }
            }
        }
    }
}
