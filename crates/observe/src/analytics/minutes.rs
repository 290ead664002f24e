//! The decisions of this instance in each minute of the last day, per rule and per tenant.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::table::MinuteTable;
use super::{DayRow, HistoryQuery, HistoryRow};
use crate::metrics::OutcomeCounts;

/// How many minutes are kept: a day.
pub(crate) const KEPT: usize = 24 * 60;

/// The key by which the decisions of a minute are summed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum GroupBy {
    /// The rule that asked.
    Rule,
    /// The tenant that asked.
    Tenant,
}

impl GroupBy {
    /// The word that the API uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Tenant => "tenant",
        }
    }
}

/// One minute of one rule or tenant.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MinuteRow {
    /// When the minute began, in seconds since the epoch.
    pub minute: u64,
    /// Whether the name is a rule's or a tenant's.
    pub by: GroupBy,
    /// The rule or the tenant.
    pub name: String,
    /// The decisions, counted.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
}

/// The last day of this instance, by the wall clock. It is bounded because the series table bounds the number of rules
/// and tenants.
#[derive(Debug, Default)]
pub(crate) struct MinuteHistory {
    kept: MinuteTable,
    /// Counts that were not yet added to the shared store. `None` until they are first asked for.
    unshared: Option<MinuteTable>,
}

impl MinuteHistory {
    /// Adds to the minute that `second` lies in.
    pub(crate) fn add(&mut self, second: u64, by: GroupBy, name: &SmolStr, counts: OutcomeCounts) {
        self.advance(second);
        for table in std::iter::once(&mut self.kept).chain(&mut self.unshared) {
            table.add(second - second % 60, by, name, counts);
        }
    }

    /// Moves to the current time. Minutes older than a day are removed. Minutes that lie ahead, because the clock was
    /// set back, are added to the present minute.
    pub(crate) fn advance(&mut self, second: u64) {
        let present = second - second % 60;
        let oldest = (present + 60).saturating_sub(60 * KEPT as u64);
        for table in std::iter::once(&mut self.kept).chain(&mut self.unshared) {
            table.advance(oldest, present);
        }
    }

    /// Takes up to `most` rows that were counted since the last call, the oldest first. The first call takes from all
    /// minutes.
    pub(crate) fn take_unshared(&mut self, most: usize) -> Vec<MinuteRow> {
        self.unshared.get_or_insert_with(|| self.kept.clone()).take_oldest(most)
    }

    /// Every row of the minutes that began in `from..to`, in order.
    pub(crate) fn rows(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        self.kept.rows(from, to)
    }

    /// The minutes that began at `from` or later, summed over the rules or tenants that the query selects.
    pub(crate) fn history(&self, from: u64, selected: &HistoryQuery) -> Vec<HistoryRow> {
        self.kept.history(from, selected)
    }

    /// The sums of the day: one row for each rule and tenant, in no particular order.
    pub(crate) fn sums(&self) -> Vec<DayRow> {
        self.kept.sums()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: OutcomeCounts = OutcomeCounts { allowed: 1, denied: 0, shadow: 0 };

    #[test]
    fn a_minute_sums_what_falls_into_it() {
        let mut minutes = MinuteHistory::default();
        for second in [120, 150, 179, 180] {
            minutes.add(second, GroupBy::Rule, &"login".into(), ONE);
        }
        let sums: Vec<_> = minutes.rows(0, 300).iter().map(|row| (row.minute, row.counts.allowed)).collect();
        assert_eq!(sums, [(120, 3), (180, 1)]);
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let mut minutes = MinuteHistory::default();
        for minute in 0..KEPT as u64 + 10 {
            minutes.add(minute * 60, GroupBy::Tenant, &"acme".into(), ONE);
        }
        let rows = minutes.rows(0, u64::MAX);
        assert_eq!((rows.len(), rows[0].minute), (KEPT, 600));
    }

    #[test]
    fn a_clock_that_is_put_back_brings_along_what_was_counted_under_later_times() {
        let mut minutes = MinuteHistory::default();
        minutes.add(60, GroupBy::Rule, &"login".into(), ONE);
        for second in [90_000, 90_060, 90_120] {
            minutes.add(second, GroupBy::Rule, &"login".into(), ONE);
        }
        assert_eq!(minutes.take_unshared(1).len(), 1);
        minutes.advance(3_700);
        minutes.add(3_700, GroupBy::Rule, &"login".into(), ONE);
        let sums: Vec<_> =
            minutes.rows(0, u64::MAX).iter().map(|row| (row.minute, row.counts.allowed)).collect();
        assert_eq!(sums, [(3_660, 4)], "the first was a day old by then");
        assert_eq!(minutes.sums()[0].counts.allowed, 4);
        let unshared: Vec<_> =
            minutes.take_unshared(9).iter().map(|row| (row.minute, row.counts.allowed)).collect();
        assert_eq!(unshared, [(3_660, 3)], "one was taken before");
    }

    #[test]
    fn a_day_that_is_over_is_forgotten_though_nothing_comes_after_it() {
        let mut minutes = MinuteHistory::default();
        minutes.add(120, GroupBy::Rule, &"login".into(), ONE);
        minutes.advance(120 + 24 * 3_600 - 1);
        assert_eq!(minutes.sums().len(), 1);
        minutes.advance(120 + 24 * 3_600);
        assert!(minutes.sums().is_empty() && minutes.rows(0, u64::MAX).is_empty());
    }

    #[test]
    fn rows_that_are_taken_in_parts_are_taken_once_and_sum_to_the_day() {
        let mut minutes = MinuteHistory::default();
        minutes.take_unshared(0);
        let (mut taken, mut sum) = (0, 0);
        for second in 0..600 {
            for name in 0..7 {
                minutes.add(second, GroupBy::Tenant, &SmolStr::from(format!("tenant {name}")), ONE);
            }
            let rows = minutes.take_unshared(3);
            assert!(rows.len() <= 3);
            taken += rows.iter().map(|row| row.counts.allowed).sum::<u64>();
        }
        taken += minutes.take_unshared(usize::MAX).iter().map(|row| row.counts.allowed).sum::<u64>();
        sum += minutes.sums().iter().map(|row| row.counts.allowed).sum::<u64>();
        let rows = minutes.rows(0, u64::MAX);
        assert_eq!((taken, sum, rows.len()), (4_200, 4_200, 70));
        assert!(rows.iter().all(|row| row.counts.allowed == 60), "{rows:?}");
    }

    #[test]
    fn what_is_not_taken_is_kept_for_a_day_and_taken_oldest_first() {
        let mut minutes = MinuteHistory::default();
        minutes.add(0, GroupBy::Rule, &"login".into(), ONE);
        assert_eq!(minutes.take_unshared(10).len(), 1, "what was counted before anybody asked");
        for minute in 1..2 * KEPT as u64 {
            minutes.add(minute * 60, GroupBy::Rule, &"login".into(), ONE);
        }
        let rows = minutes.take_unshared(100);
        assert_eq!((rows.len(), rows[0].minute), (100, KEPT as u64 * 60));
        assert_eq!(minutes.take_unshared(usize::MAX).len(), KEPT - 100);
        assert_eq!(minutes.take_unshared(usize::MAX).len(), 0);
    }
}
