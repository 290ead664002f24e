//! The totals that are computed from the counters, once a second and whenever figures are read.

use foldhash::HashMap;
use smol_str::SmolStr;
use spile_core::Micros;

use super::snapshot::TopLimit;
use crate::analytics::{GroupBy, MinuteHistory};
use crate::metrics::{
    DecisionRates, OutcomeCounts, RecentLatencies, SeriesInfo, SeriesSubject, StoreHealthTracker,
};

/// How many limits are shown.
const SHOWN: usize = 10;

/// Sums of the drained counters, by second, minute and limit.
pub(crate) struct CounterTotals {
    pub(crate) decided: OutcomeCounts,
    pub(crate) rates: DecisionRates,
    pub(crate) minutes: MinuteHistory,
    pub(crate) latencies: RecentLatencies,
    pub(crate) health: StoreHealthTracker,
    /// Decisions without the store that were already reported to the health tracker.
    limits: HashMap<SmolStr, OutcomeCounts>,
    unflushed: OutcomeCounts,
}

impl CounterTotals {
    pub(crate) fn new(health: StoreHealthTracker) -> Self {
        Self {
            decided: OutcomeCounts::default(),
            rates: DecisionRates::default(),
            minutes: MinuteHistory::default(),
            latencies: RecentLatencies::new(),
            health,
            limits: HashMap::default(),
            unflushed: OutcomeCounts::default(),
        }
    }

    /// Adds what a series has counted since the last flush. Minutes use the wall clock.
    pub(crate) fn add(&mut self, wall: Micros, info: &SeriesInfo, more: u64) {
        let mut counts = OutcomeCounts::default();
        counts.add(info.outcome, more);
        let second = wall.get() / 1_000_000;
        match &info.subject {
            SeriesSubject::Decisions { rule, limit } => {
                self.unflushed += counts;
                *self.limits.entry(limit.clone()).or_default() += counts;
                self.minutes.add(second, GroupBy::Rule, rule, counts);
            }
            SeriesSubject::Tenant(tenant) => self.minutes.add(second, GroupBy::Tenant, tenant, counts),
        }
    }

    /// Ends a flush. Seconds use a monotonic clock, because they must go on when the wall clock is set back.
    pub(crate) fn end_flush(&mut self, now: Micros, wall: Micros) {
        let unflushed = std::mem::take(&mut self.unflushed);
        self.decided += unflushed;
        self.rates.add(now.get() / 1_000_000, unflushed);
        self.minutes.advance(wall.get() / 1_000_000);
    }

    pub(crate) fn top_limits(&self) -> Vec<TopLimit> {
        let mut top: Vec<_> = self
            .limits
            .iter()
            .map(|(limit, &counts)| TopLimit { limit: limit.to_string(), counts })
            .collect();
        top.sort_by(|a, b| b.counts.all().cmp(&a.counts.all()).then_with(|| a.limit.cmp(&b.limit)));
        top.truncate(SHOWN);
        top
    }
}
