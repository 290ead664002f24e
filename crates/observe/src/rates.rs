//! Decisions of each of the last seconds.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::tally::Tally;

/// Seconds that are kept.
const KEPT: usize = 120;

/// What was decided in one second.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Second {
    /// Seconds since the epoch.
    pub at: u64,
    /// What was decided.
    #[serde(flatten)]
    pub tally: Tally,
}

/// The last two minutes, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    seconds: VecDeque<Second>,
}

impl Rates {
    pub(crate) fn add(&mut self, at: u64, tally: Tally) {
        let last = self.seconds.back().map_or(at.saturating_sub(1), |second| second.at);
        // A pause longer than what is kept leaves nothing but itself to show.
        let first_missing = (last + 1).max((at + 1).saturating_sub(KEPT as u64));
        for missing in first_missing..=at {
            self.seconds.push_back(Second { at: missing, tally: Tally::default() });
        }
        while self.seconds.len() > KEPT {
            self.seconds.pop_front();
        }
        if let Some(second) = self.seconds.back_mut() {
            second.tally += tally;
        }
    }

    /// The seconds as the wall clock has them, which says `wall` at the time `now` of the clock that they were added by.
    pub(crate) fn seconds(&self, now: u64, wall: u64) -> Vec<Second> {
        let shown = |second: &Second| Second { at: (second.at + wall).saturating_sub(now), ..*second };
        self.seconds.iter().map(shown).collect()
    }

    /// The mean of the last whole seconds, per second.
    pub(crate) fn lately(&self, seconds: usize) -> Tally {
        let mut sum = Tally::default();
        self.seconds.iter().rev().skip(1).take(seconds).for_each(|second| sum += second.tally);
        let mean = |count: u64| count.div_ceil(seconds.max(1) as u64);
        Tally { allowed: mean(sum.allowed), denied: mean(sum.denied), shadow: mean(sum.shadow) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_decisions_shows_as_zero() {
        let mut rates = Rates::default();
        rates.add(10, Tally { allowed: 4, ..Tally::default() });
        rates.add(13, Tally { allowed: 2, ..Tally::default() });
        let allowed: Vec<_> =
            rates.seconds(0, 0).iter().map(|second| (second.at, second.tally.allowed)).collect();
        assert_eq!(allowed, [(10, 4), (11, 0), (12, 0), (13, 2)]);
    }

    #[test]
    fn a_long_pause_keeps_the_bound() {
        let mut rates = Rates::default();
        rates.add(10, Tally::default());
        rates.add(1_000_000, Tally::default());
        assert_eq!(rates.seconds(0, 0).len(), KEPT);
    }
}
