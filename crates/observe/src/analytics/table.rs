//! Minutes that are still added to: the current minute as a map, earlier ones packed.

use std::collections::BTreeMap;

use foldhash::HashMap;
use smol_str::SmolStr;

use super::minutes::{GroupBy, MinuteRow};
use super::packed::PackedMinutes;
use super::{DayRow, HistoryQuery, HistoryRow};
use crate::metrics::OutcomeCounts;

/// Minutes by the second since the epoch at which they began.
#[derive(Clone, Debug, Default)]
pub(crate) struct MinuteTable {
    open: OpenMinute,
    packed: PackedMinutes,
}

/// The minute that was last added to.
#[derive(Clone, Debug, Default)]
struct OpenMinute {
    began: u64,
    counts_by_name: HashMap<(GroupBy, SmolStr), OutcomeCounts>,
}

impl MinuteTable {
    pub(crate) fn add(&mut self, began: u64, by: GroupBy, name: &SmolStr, counts: OutcomeCounts) {
        if self.open.began != began {
            self.pack();
            self.open.began = began;
        }
        *self.open.counts_by_name.entry((by, name.clone())).or_default() += counts;
    }

    /// Removes the minutes before `oldest`. Minutes later than `present` were counted before the clock was set back;
    /// they are added to the present minute.
    pub(crate) fn advance(&mut self, oldest: u64, present: u64) {
        if self.last().is_some_and(|last| last > present) {
            self.pack();
            let later: Vec<u64> = self.packed.began_in(present + 1, u64::MAX).collect();
            for minute in later {
                let counts_by_name = self.take(minute);
                for ((by, name), counts) in counts_by_name {
                    self.add(present, by, &name, counts);
                }
            }
        }
        if self.first().is_some_and(|first| first < oldest) {
            self.pack();
            self.packed.retain(oldest, u64::MAX);
        }
    }

    /// Every row of the minutes that began in `from..to`, in order.
    pub(crate) fn rows(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        let open = self.open.began;
        let is_open = !self.open.counts_by_name.is_empty() && (from..to).contains(&open);
        let packed = self.packed.began_in(from, to).filter(|minute| *minute != open);
        let mut minutes: Vec<u64> = packed.chain(is_open.then_some(open)).collect();
        minutes.sort_unstable();
        let row = |minute, ((by, name), counts): ((GroupBy, SmolStr), OutcomeCounts)| MinuteRow {
            minute,
            by,
            name: name.to_string(),
            counts,
        };
        let rows = |minute| self.counts_by_name(minute).into_iter().map(move |counts| row(minute, counts));
        minutes.into_iter().flat_map(rows).collect()
    }

    /// The minutes that began at `from` or later, summed over the rules or tenants that the query selects.
    pub(crate) fn history(&self, from: u64, selected: &HistoryQuery) -> Vec<HistoryRow> {
        let mut rows = self.packed.history(from, selected);
        let counts =
            self.open.counts_by_name.iter().map(|((by, name), counts)| (*by, name.as_str(), *counts));
        if let Some(open) = selected.sum(self.open.began, counts).filter(|open| open.at >= from) {
            match rows.binary_search_by_key(&open.at, |row| row.at) {
                Ok(place) => rows[place].counts += open.counts,
                Err(place) => rows.insert(place, open),
            }
        }
        rows
    }

    /// The sums of all minutes: one row for each rule and tenant, in no particular order.
    pub(crate) fn sums(&self) -> Vec<DayRow> {
        let mut sums = self.packed.sums();
        let places = sums.iter().enumerate().map(|(place, row)| ((row.by, SmolStr::new(&row.name)), place));
        let places: HashMap<_, usize> = places.collect();
        for (key, &counts) in &self.open.counts_by_name {
            match places.get(key) {
                Some(&place) => sums[place].counts += counts,
                None => sums.push(DayRow { by: key.0, name: key.1.to_string(), counts }),
            }
        }
        sums
    }

    /// Removes and returns up to `most` rows, the oldest first.
    pub(crate) fn take_oldest(&mut self, most: usize) -> Vec<MinuteRow> {
        let mut taken = Vec::new();
        while let Some(minute) = self.first().filter(|_| taken.len() < most) {
            let mut counts_by_name = self.take(minute).into_iter();
            let row = |((by, name), counts): ((GroupBy, SmolStr), OutcomeCounts)| MinuteRow {
                minute,
                by,
                name: name.to_string(),
                counts,
            };
            taken.extend(counts_by_name.by_ref().take(most - taken.len()).map(row));
            for ((by, name), counts) in counts_by_name {
                self.add(minute, by, &name, counts);
            }
        }
        taken
    }

    fn first(&self) -> Option<u64> {
        let open = (!self.open.counts_by_name.is_empty()).then_some(self.open.began);
        self.packed.first().into_iter().chain(open).min()
    }

    fn last(&self) -> Option<u64> {
        let open = (!self.open.counts_by_name.is_empty()).then_some(self.open.began);
        self.packed.last().max(open)
    }

    /// Packs the open minute, together with the counts of it that were packed before.
    fn pack(&mut self) {
        if self.open.counts_by_name.is_empty() {
            return;
        }
        let began = self.open.began;
        let counts_by_name = self.counts_by_name(began);
        self.open.counts_by_name.clear();
        self.packed.put(
            began,
            0,
            counts_by_name.iter().map(|((by, name), counts)| (*by, name.as_str(), *counts)),
        );
    }

    /// The counts of one minute, which may be open, packed or both.
    fn counts_by_name(&self, minute: u64) -> BTreeMap<(GroupBy, SmolStr), OutcomeCounts> {
        let packed =
            self.packed.counts_by_name(minute).map(|(by, name, counts)| ((by, name.clone()), counts));
        let mut counts_by_name: BTreeMap<_, OutcomeCounts> = packed.collect();
        if self.open.began == minute {
            for (key, &counts) in &self.open.counts_by_name {
                *counts_by_name.entry(key.clone()).or_default() += counts;
            }
        }
        counts_by_name
    }

    fn take(&mut self, minute: u64) -> BTreeMap<(GroupBy, SmolStr), OutcomeCounts> {
        let counts_by_name = self.counts_by_name(minute);
        self.packed.remove(minute);
        if self.open.began == minute {
            self.open.counts_by_name.clear();
        }
        counts_by_name
    }
}
