//! Minutes that are still added to: the present one as a map, those before it packed.

use std::collections::BTreeMap;

use foldhash::HashMap;
use smol_str::SmolStr;

use crate::analytics::DayRow;
use crate::minutes::{By, MinuteRow};
use crate::packed::PackedMinutes;
use crate::tally::Tally;

/// Minutes by when they began, in seconds since the epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct MinuteTable {
    open: Open,
    packed: PackedMinutes,
}

/// The minute that was last added to.
#[derive(Clone, Debug, Default)]
struct Open {
    began: u64,
    tallies: HashMap<(By, SmolStr), Tally>,
}

impl MinuteTable {
    pub(crate) fn add(&mut self, began: u64, by: By, name: &SmolStr, tally: Tally) {
        if self.open.began != began {
            self.pack();
            self.open.began = began;
        }
        *self.open.tallies.entry((by, name.clone())).or_default() += tally;
    }

    /// Forgets the minutes before `oldest`. What was counted under a time later than `present` happened before the clock
    /// was put back, and is counted in the present minute.
    pub(crate) fn turn(&mut self, oldest: u64, present: u64) {
        if self.last().is_some_and(|last| last > present) {
            self.pack();
            let later: Vec<u64> = self.packed.began_in(present + 1, u64::MAX).collect();
            for minute in later {
                let tallies = self.take(minute);
                for ((by, name), tally) in tallies {
                    self.add(present, by, &name, tally);
                }
            }
        }
        if self.first().is_some_and(|first| first < oldest) {
            self.pack();
            self.packed.keep(oldest, u64::MAX);
        }
    }

    /// Every row of the minutes that began in `from..to`, in order.
    pub(crate) fn rows(&self, from: u64, to: u64) -> Vec<MinuteRow> {
        let open = self.open.began;
        let is_open = !self.open.tallies.is_empty() && (from..to).contains(&open);
        let packed = self.packed.began_in(from, to).filter(|minute| *minute != open);
        let mut minutes: Vec<u64> = packed.chain(is_open.then_some(open)).collect();
        minutes.sort_unstable();
        let row = |minute, ((by, name), tally): ((By, SmolStr), Tally)| MinuteRow {
            minute,
            by,
            name: name.to_string(),
            tally,
        };
        let rows = |minute| self.tallies(minute).into_iter().map(move |tally| row(minute, tally));
        minutes.into_iter().flat_map(rows).collect()
    }

    /// The sum of all minutes, one row for each rule and tenant in no order.
    pub(crate) fn sums(&self) -> Vec<DayRow> {
        let mut sums = self.packed.sums();
        let places = sums.iter().enumerate().map(|(place, row)| ((row.by, SmolStr::new(&row.name)), place));
        let places: HashMap<_, usize> = places.collect();
        for (key, &tally) in &self.open.tallies {
            match places.get(key) {
                Some(&place) => sums[place].tally += tally,
                None => sums.push(DayRow { by: key.0, name: key.1.to_string(), tally }),
            }
        }
        sums
    }

    /// Takes rows out of the table, the oldest first and `most` of them.
    pub(crate) fn take_oldest(&mut self, most: usize) -> Vec<MinuteRow> {
        let mut taken = Vec::new();
        while let Some(minute) = self.first().filter(|_| taken.len() < most) {
            let mut tallies = self.take(minute).into_iter();
            let row = |((by, name), tally): ((By, SmolStr), Tally)| MinuteRow {
                minute,
                by,
                name: name.to_string(),
                tally,
            };
            taken.extend(tallies.by_ref().take(most - taken.len()).map(row));
            for ((by, name), tally) in tallies {
                self.add(minute, by, &name, tally);
            }
        }
        taken
    }

    fn first(&self) -> Option<u64> {
        let open = (!self.open.tallies.is_empty()).then_some(self.open.began);
        self.packed.first().into_iter().chain(open).min()
    }

    fn last(&self) -> Option<u64> {
        let open = (!self.open.tallies.is_empty()).then_some(self.open.began);
        self.packed.last().max(open)
    }

    /// Packs the open minute, together with what was packed of it before.
    fn pack(&mut self) {
        if self.open.tallies.is_empty() {
            return;
        }
        let began = self.open.began;
        let tallies = self.tallies(began);
        self.open.tallies.clear();
        self.packed.put(began, 0, tallies.iter().map(|((by, name), tally)| (*by, name.as_str(), *tally)));
    }

    /// What is in one minute, open or packed or both.
    fn tallies(&self, minute: u64) -> BTreeMap<(By, SmolStr), Tally> {
        let packed = self.packed.tallies(minute).map(|(by, name, tally)| ((by, name.clone()), tally));
        let mut tallies: BTreeMap<_, Tally> = packed.collect();
        if self.open.began == minute {
            for (key, &tally) in &self.open.tallies {
                *tallies.entry(key.clone()).or_default() += tally;
            }
        }
        tallies
    }

    fn take(&mut self, minute: u64) -> BTreeMap<(By, SmolStr), Tally> {
        let tallies = self.tallies(minute);
        self.packed.remove(minute);
        if self.open.began == minute {
            self.open.tallies.clear();
        }
        tallies
    }
}
