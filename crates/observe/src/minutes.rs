//! Who was allowed and denied how much in each minute of the last day: per rule and per tenant.

use std::collections::VecDeque;

use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

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

/// The last day of this instance. Bounded, because names are: the book has a bound on each.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    minutes: VecDeque<Minute>,
    /// What was not yet brought to where instances meet; nothing is kept where nobody ever asks for it.
    unshared: Option<HashMap<(u64, By, SmolStr), Tally>>,
}

#[derive(Debug)]
struct Minute {
    began: u64,
    tallies: HashMap<(By, SmolStr), Tally>,
}

impl Minutes {
    /// Adds to the minute that `second` lies in.
    pub(crate) fn add(&mut self, second: u64, by: By, name: &SmolStr, tally: Tally) {
        let began = second - second % 60;
        if self.minutes.back().is_none_or(|last| last.began < began) {
            self.minutes.push_back(Minute { began, tallies: HashMap::default() });
        }
        while self.minutes.front().is_some_and(|first| first.began + 60 * KEPT as u64 <= began) {
            self.minutes.pop_front();
            let oldest = self.minutes.front().map_or(0, |first| first.began);
            if let Some(unshared) = &mut self.unshared {
                // What nobody took for a day is not worth taking any more.
                unshared.retain(|(minute, ..), _| *minute >= oldest);
            }
        }
        if let Some(minute) = self.minutes.back_mut() {
            *minute.tallies.entry((by, name.clone())).or_default() += tally;
            let began = minute.began;
            self.add_unshared(began, by, name.clone(), tally);
        }
    }

    /// Takes what was counted since the last time, the oldest first and `most` rows of it. The first time, everything
    /// there is counts as new.
    pub(crate) fn take_unshared(&mut self, most: usize) -> Vec<MinuteRow> {
        let minutes = &self.minutes;
        let unshared = self.unshared.get_or_insert_with(|| {
            let rows = minutes.iter().flat_map(Minute::tallies);
            rows.map(|(began, by, name, tally)| ((began, by, name.clone()), tally)).collect()
        });
        let mut oldest: Vec<_> = unshared.keys().cloned().collect();
        if oldest.len() > most {
            oldest.sort_unstable();
            oldest.truncate(most);
        }
        let take = |key: (u64, By, SmolStr)| {
            let tally = unshared.remove(&key)?;
            Some(MinuteRow { minute: key.0, by: key.1, name: key.2.to_string(), tally })
        };
        oldest.into_iter().filter_map(take).collect()
    }

    fn add_unshared(&mut self, minute: u64, by: By, name: SmolStr, tally: Tally) {
        if let Some(unshared) = &mut self.unshared {
            *unshared.entry((minute, by, name)).or_default() += tally;
        }
    }

    /// Every row of the minutes that began in `from..to`, in order.
    pub(crate) fn rows(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        let asked = self.minutes.iter().filter(|minute| (from..to).contains(&minute.began));
        let mut rows: Vec<_> = asked.flat_map(Minute::rows).collect();
        rows.sort_by(|a, b| (a.minute, a.by, &a.name).cmp(&(b.minute, b.by, &b.name)));
        rows
    }
}

impl Minute {
    fn tallies(&self) -> impl Iterator<Item = (u64, By, &SmolStr, Tally)> {
        self.tallies.iter().map(|((by, name), &tally)| (self.began, *by, name, tally))
    }

    fn rows(&self) -> impl Iterator<Item = MinuteRow> {
        self.tallies().map(|(minute, by, name, tally)| MinuteRow {
            minute,
            by,
            name: name.to_string(),
            tally,
        })
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
    fn a_clock_that_steps_back_adds_to_the_latest_minute() {
        let mut minutes = Minutes::default();
        minutes.add(600, By::Rule, &"login".into(), ONE);
        minutes.add(60, By::Rule, &"login".into(), ONE);
        assert_eq!(minutes.rows(0, 1_000).len(), 1);
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
