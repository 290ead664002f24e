//! The decisions of each of the last seconds.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::outcome::OutcomeCounts;

/// How many seconds are kept.
const KEPT: usize = 120;

/// The decisions of one second.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SecondRow {
    /// Seconds since the epoch.
    pub at: u64,
    /// The decisions, counted.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
}

/// The last two minutes, with a row for every second.
#[derive(Debug, Default)]
pub(crate) struct DecisionRates {
    seconds: VecDeque<SecondRow>,
}

impl DecisionRates {
    pub(crate) fn add(&mut self, at: u64, counts: OutcomeCounts) {
        let last = self.seconds.back().map_or(at.saturating_sub(1), |second| second.at);
        // After a pause that is longer than the kept time, only zeros remain.
        let first_missing = (last + 1).max((at + 1).saturating_sub(KEPT as u64));
        for missing in first_missing..=at {
            self.seconds.push_back(SecondRow { at: missing, counts: OutcomeCounts::default() });
        }
        while self.seconds.len() > KEPT {
            self.seconds.pop_front();
        }
        if let Some(second) = self.seconds.back_mut() {
            second.counts += counts;
        }
    }

    /// The rows by wall time. They were added by a monotonic clock that reads `now` when the wall clock reads `wall`.
    pub(crate) fn seconds(&self, now: u64, wall: u64) -> Vec<SecondRow> {
        let shown = |second: &SecondRow| SecondRow { at: (second.at + wall).saturating_sub(now), ..*second };
        self.seconds.iter().map(shown).collect()
    }

    /// The mean of the last whole seconds, per second.
    pub(crate) fn recent(&self, seconds: usize) -> OutcomeCounts {
        let mut sum = OutcomeCounts::default();
        self.seconds.iter().rev().skip(1).take(seconds).for_each(|second| sum += second.counts);
        let mean = |count: u64| count.div_ceil(seconds.max(1) as u64);
        OutcomeCounts { allowed: mean(sum.allowed), denied: mean(sum.denied), shadow: mean(sum.shadow) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_decisions_shows_as_zero() {
        let mut rates = DecisionRates::default();
        rates.add(10, OutcomeCounts { allowed: 4, ..OutcomeCounts::default() });
        rates.add(13, OutcomeCounts { allowed: 2, ..OutcomeCounts::default() });
        let allowed: Vec<_> =
            rates.seconds(0, 0).iter().map(|second| (second.at, second.counts.allowed)).collect();
        assert_eq!(allowed, [(10, 4), (11, 0), (12, 0), (13, 2)]);
    }

    #[test]
    fn a_long_pause_keeps_the_bound() {
        let mut rates = DecisionRates::default();
        rates.add(10, OutcomeCounts::default());
        rates.add(1_000_000, OutcomeCounts::default());
        assert_eq!(rates.seconds(0, 0).len(), KEPT);
    }
}
