//! The totals that are computed from the counters, once a second and whenever figures are read.

use foldhash::HashMap;
use smol_str::SmolStr;
use spile_core::{DecisionSource, Micros};

use super::snapshot::{LocalCounts, TopLimit};
use crate::analytics::{GroupBy, MinuteHistory};
use crate::metrics::{
    DecisionRates, Latencies, OutcomeCounts, RecentLatencies, SeriesInfo, SeriesSubject, StoreHealthTracker,
    StoreHistory, StoreState, StorelessCounts,
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
    pub(crate) store_history: StoreHistory,
    /// When the store was lost, and the count of decisions without it before that. `None` while it answers.
    pub(crate) outage: Option<OutageStart>,
    /// Decisions without the store up to the last tick.
    pub(crate) storeless_seen: StorelessCounts,
    /// Decisions from the deny cache or from leased tokens.
    pub(crate) nearby: LocalCounts,
    limits: HashMap<SmolStr, OutcomeCounts>,
    unflushed: OutcomeCounts,
}

/// The beginning of a time without the store.
pub(crate) struct OutageStart {
    pub(crate) since_ms: u64,
    pub(crate) before: StorelessCounts,
}

impl CounterTotals {
    pub(crate) fn new(health: StoreHealthTracker) -> Self {
        Self {
            decided: OutcomeCounts::default(),
            rates: DecisionRates::default(),
            minutes: MinuteHistory::default(),
            latencies: RecentLatencies::new(),
            health,
            store_history: StoreHistory::new(),
            outage: None,
            storeless_seen: StorelessCounts::default(),
            nearby: LocalCounts::default(),
            limits: HashMap::default(),
            unflushed: OutcomeCounts::default(),
        }
    }

    /// Adds what a series has counted since the last flush. Minutes use the wall clock.
    pub(crate) fn add(&mut self, wall: Micros, info: &SeriesInfo, more: u64) {
        let mut counts = OutcomeCounts::default();
        counts.add(info.outcome, more);
        match info.source {
            Some(DecisionSource::DenyCache) => self.nearby.deny_cache += more,
            Some(DecisionSource::Lease) => self.nearby.lease += more,
            _ => {}
        }
        let second = wall.get() / 1_000_000;
        match &info.subject {
            SeriesSubject::Decisions { rule, limit } => {
                self.unflushed += counts;
                // Requests that no limit applies to have an empty name.
                if !limit.is_empty() {
                    *self.limits.entry(limit.clone()).or_default() += counts;
                }
                self.minutes.add(second, GroupBy::Rule, rule, counts);
            }
            SeriesSubject::Tenant(tenant) => self.minutes.add(second, GroupBy::Tenant, tenant, counts),
        }
    }

    /// Ends a flush. Seconds use a monotonic clock, because they must continue when the wall clock is set back.
    pub(crate) fn end_flush(&mut self, now: Micros, wall: Micros) {
        let unflushed = std::mem::take(&mut self.unflushed);
        self.decided += unflushed;
        self.rates.add(now.get() / 1_000_000, unflushed);
        self.minutes.advance(wall.get() / 1_000_000);
    }

    /// Ends a second of the store: the latency of its calls, whether it answers, and the decisions without it.
    pub(crate) fn tick_store(
        &mut self,
        wall: Micros,
        latencies: &Latencies,
        storeless: StorelessCounts,
        check_health: impl FnOnce(&mut StoreHealthTracker, StorelessCounts),
    ) {
        let before = std::mem::replace(&mut self.storeless_seen, storeless);
        let more = storeless.since(before);
        let calls = self.latencies.tick(latencies);
        self.store_history.tick(wall.get() / 1_000_000, calls, more);
        check_health(&mut self.health, storeless);
        if self.health.state() != StoreState::Lost {
            self.outage = None;
        } else if self.outage.is_none() {
            self.outage = Some(OutageStart { since_ms: wall.get() / 1_000, before });
        }
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
