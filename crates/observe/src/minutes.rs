//! Who was allowed and denied how much in each minute of the last day: per rule and per tenant.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::analytics::DayRow;
use crate::table::MinuteTable;
use crate::tally::Tally;

/// Minutes that are kept: a day.
pub(crate) const KEPT: usize = 24 * 60;

/// What the decisions of a minute are summed by.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum By {
    /// The rule that asked.
    Rule,
    /// The tenant that asked.
    Tenant,
}

impl By {
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
    pub by: By,
    /// The rule or the tenant.
    pub name: String,
    /// What was decided.
    #[serde(flatten)]
    pub tally: Tally,
}

/// The last day of this instance, by the wall clock. Bounded, because names are: the book has a bound on each.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    kept: MinuteTable,
    /// What was not yet brought to where instances meet. `None` until that is asked for.
    unshared: Option<MinuteTable>,
}

impl Minutes {
    /// Adds to the minute that `second` lies in.
    pub(crate) fn add(&mut self, second: u64, by: By, name: &SmolStr, tally: Tally) {
        self.turn(second);
        for table in std::iter::once(&mut self.kept).chain(&mut self.unshared) {
            table.add(second - second % 60, by, name, tally);
        }
    }

    /// Goes by the time that it is now: what is a day old goes, and what lies ahead, because the clock was put back, is
    /// counted in the present minute.
    pub(crate) fn turn(&mut self, second: u64) {
        let present = second - second % 60;
        let oldest = (present + 60).saturating_sub(60 * KEPT as u64);
        for table in std::iter::once(&mut self.kept).chain(&mut self.unshared) {
            table.turn(oldest, present);
        }
    }

    /// Takes what was counted since the last time, the oldest first and `most` rows of it. The first time, everything
    /// there is counts as new.
    pub(crate) fn take_unshared(&mut self, most: usize) -> Vec<MinuteRow> {
        self.unshared.get_or_insert_with(|| self.kept.clone()).take_oldest(most)
    }

    /// Every row of the minutes that began in `from..to`, in order.
    pub(crate) fn rows(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        self.kept.rows(from, to)
    }

    /// The sum of the day, one row for each rule and tenant in no order.
    pub(crate) fn sums(&self) -> Vec<DayRow> {
        self.kept.sums()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Tally = Tally { allowed: 1, denied: 0, shadow: 0 };

    #[test]
    fn a_minute_sums_what_falls_into_it() {
        let mut minutes = Minutes::default();
        for second in [120, 150, 179, 180] {
            minutes.add(second, By::Rule, &"login".into(), ONE);
        }
        let sums: Vec<_> = minutes.rows(0, 300).iter().map(|row| (row.minute, row.tally.allowed)).collect();
        assert_eq!(sums, [(120, 3), (180, 1)]);
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let mut minutes = Minutes::default();
        for minute in 0..KEPT as u64 + 10 {
            minutes.add(minute * 60, By::Tenant, &"acme".into(), ONE);
        }
        let rows = minutes.rows(0, u64::MAX);
        assert_eq!((rows.len(), rows[0].minute), (KEPT, 600));
    }

    #[test]
    fn a_clock_that_is_put_back_brings_along_what_was_counted_under_later_times() {
        let mut minutes = Minutes::default();
        minutes.add(60, By::Rule, &"login".into(), ONE);
        for second in [90_000, 90_060, 90_120] {
            minutes.add(second, By::Rule, &"login".into(), ONE);
        }
        assert_eq!(minutes.take_unshared(1).len(), 1);
        minutes.turn(3_700);
        minutes.add(3_700, By::Rule, &"login".into(), ONE);
        let sums: Vec<_> =
            minutes.rows(0, u64::MAX).iter().map(|row| (row.minute, row.tally.allowed)).collect();
        assert_eq!(sums, [(3_660, 4)], "the first was a day old by then");
        assert_eq!(minutes.sums()[0].tally.allowed, 4);
        let unshared: Vec<_> =
            minutes.take_unshared(9).iter().map(|row| (row.minute, row.tally.allowed)).collect();
        assert_eq!(unshared, [(3_660, 3)], "one was taken before");
    }

    #[test]
    fn a_day_that_is_over_is_forgotten_though_nothing_comes_after_it() {
        let mut minutes = Minutes::default();
        minutes.add(120, By::Rule, &"login".into(), ONE);
        minutes.turn(120 + 24 * 3_600 - 1);
        assert_eq!(minutes.sums().len(), 1);
        minutes.turn(120 + 24 * 3_600);
        assert!(minutes.sums().is_empty() && minutes.rows(0, u64::MAX).is_empty());
    }

    #[test]
    fn rows_that_are_taken_in_parts_are_taken_once_and_sum_to_the_day() {
        let mut minutes = Minutes::default();
        minutes.take_unshared(0);
        let (mut taken, mut sum) = (0, 0);
        for second in 0..600 {
            for name in 0..7 {
                minutes.add(second, By::Tenant, &SmolStr::from(format!("tenant {name}")), ONE);
            }
            let rows = minutes.take_unshared(3);
            assert!(rows.len() <= 3);
            taken += rows.iter().map(|row| row.tally.allowed).sum::<u64>();
        }
        taken += minutes.take_unshared(usize::MAX).iter().map(|row| row.tally.allowed).sum::<u64>();
        sum += minutes.sums().iter().map(|row| row.tally.allowed).sum::<u64>();
        let rows = minutes.rows(0, u64::MAX);
        assert_eq!((taken, sum, rows.len()), (4_200, 4_200, 70));
        assert!(rows.iter().all(|row| row.tally.allowed == 60), "{rows:?}");
    }

    #[test]
    fn what_is_not_taken_is_kept_for_a_day_and_taken_oldest_first() {
        let mut minutes = Minutes::default();
        minutes.add(0, By::Rule, &"login".into(), ONE);
        assert_eq!(minutes.take_unshared(10).len(), 1, "what was counted before anybody asked");
        for minute in 1..2 * KEPT as u64 {
            minutes.add(minute * 60, By::Rule, &"login".into(), ONE);
        }
        let rows = minutes.take_unshared(100);
        assert_eq!((rows.len(), rows[0].minute), (100, KEPT as u64 * 60));
        assert_eq!(minutes.take_unshared(usize::MAX).len(), KEPT - 100);
        assert_eq!(minutes.take_unshared(usize::MAX).len(), 0);
    }
}
