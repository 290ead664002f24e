//! What is brought up to date once a second, and whenever somebody looks.

use foldhash::HashMap;
use smol_str::SmolStr;
use spile_core::Micros;

use crate::book::{Meaning, Subject};
use crate::health::Health;
use crate::latencies::RecentLatencies;
use crate::minutes::{By, Minutes};
use crate::rates::Rates;
use crate::snapshot::TopLimit;
use crate::tally::Tally;

/// Limits that are shown of those that decided most.
const SHOWN: usize = 10;

/// The sums that are taken from the counts.
pub(crate) struct Pulse {
    pub(crate) totals: Tally,
    pub(crate) rates: Rates,
    pub(crate) minutes: Minutes,
    pub(crate) latencies: RecentLatencies,
    pub(crate) health: Health,
    /// Decisions made without the store that the health was already told of.
    pub(crate) degraded_seen: u64,
    limits: HashMap<SmolStr, Tally>,
    fresh: Tally,
}

impl Pulse {
    pub(crate) fn new(health: Health) -> Self {
        Self {
            totals: Tally::default(),
            rates: Rates::default(),
            minutes: Minutes::default(),
            latencies: RecentLatencies::new(),
            health,
            degraded_seen: 0,
            limits: HashMap::default(),
            fresh: Tally::default(),
        }
    }

    /// Adds what was counted of one thing since the last time. Minutes go by the wall clock.
    pub(crate) fn add(&mut self, wall: Micros, meaning: &Meaning, more: u64) {
        let mut tally = Tally::default();
        tally.add(meaning.verdict, more);
        let second = wall.get() / 1_000_000;
        match &meaning.subject {
            Subject::Decisions { rule, limit } => {
                self.fresh += tally;
                *self.limits.entry(limit.clone()).or_default() += tally;
                self.minutes.add(second, By::Rule, rule, tally);
            }
            Subject::Tenant(tenant) => self.minutes.add(second, By::Tenant, tenant, tally),
        }
    }

    /// Ends a round of adding. Seconds go by a monotonic clock: they must not stop while the wall clock is behind.
    pub(crate) fn close(&mut self, now: Micros, wall: Micros) {
        let fresh = std::mem::take(&mut self.fresh);
        self.totals += fresh;
        self.rates.add(now.get() / 1_000_000, fresh);
        self.minutes.turn(wall.get() / 1_000_000);
    }

    pub(crate) fn top_limits(&self) -> Vec<TopLimit> {
        let mut top: Vec<_> =
            self.limits.iter().map(|(limit, &tally)| TopLimit { limit: limit.to_string(), tally }).collect();
        top.sort_by(|a, b| b.tally.all().cmp(&a.tally.all()).then_with(|| a.limit.cmp(&b.limit)));
        top.truncate(SHOWN);
        top
    }
}
