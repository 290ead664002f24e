//! Minutes of many rules and tenants in little memory, together with their sums.
//!
//! Each name is stored once and has a number. A minute is a byte string: for each name the distance of its number from
//! the number before, and the counts that are not zero. A tenant takes about four bytes of a minute, so that a day of a
//! thousand tenants takes 6 MB.

use std::collections::BTreeMap;

use foldhash::HashMap;
use smol_str::SmolStr;

use super::minutes::GroupBy;
use super::{DayRow, HistoryQuery, HistoryRow};
use crate::metrics::{OVERFLOW, OutcomeCounts};

/// The most names in all minutes together. Counts of further names are summed as `__overflow__`.
const MOST_NAMES: usize = 10_000;

/// Minutes by the second since the epoch at which they began, and their sums.
#[derive(Clone, Debug, Default)]
pub struct PackedMinutes {
    names: NameIndex,
    minutes: BTreeMap<u64, PackedMinute>,
}

#[derive(Clone, Debug)]
struct PackedMinute {
    revision: i64,
    bytes: Box<[u8]>,
}

/// Names by number. When no minute contains a name any more, its number is reused for another name.
#[derive(Clone, Debug, Default)]
struct NameIndex {
    numbers: HashMap<(GroupBy, SmolStr), u32>,
    entries: Vec<IndexedName>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct IndexedName {
    by: GroupBy,
    name: SmolStr,
    /// How many minutes contain the name.
    minutes: u32,
    sum: OutcomeCounts,
}

impl PackedMinutes {
    /// The revision that was stored with a minute.
    pub fn revision(&self, minute: u64) -> Option<i64> {
        self.minutes.get(&minute).map(|packed| packed.revision)
    }

    /// Stores a minute and replaces the one that was there. If a name occurs several times, its counts are added.
    pub fn put<'a>(
        &mut self,
        minute: u64,
        revision: i64,
        counts_by_name: impl IntoIterator<Item = (GroupBy, &'a str, OutcomeCounts)>,
    ) {
        let mut numbered: BTreeMap<u32, OutcomeCounts> = BTreeMap::new();
        for (by, name, counts) in counts_by_name {
            *numbered.entry(self.names.number_of(by, name)).or_default() += counts;
        }
        for (&number, &counts) in &numbered {
            self.names.add_minute(number, counts);
        }
        let packed = PackedMinute { revision, bytes: pack(&numbered) };
        if let Some(before) = self.minutes.insert(minute, packed) {
            self.names.remove_minute(&before.bytes);
        }
    }

    /// Removes a minute.
    pub fn remove(&mut self, minute: u64) {
        if let Some(packed) = self.minutes.remove(&minute) {
            self.names.remove_minute(&packed.bytes);
        }
    }

    /// Removes the minutes that began before `from`, or at `to` or later.
    pub fn retain(&mut self, from: u64, to: u64) {
        while let Some(minute) = self.first().filter(|minute| *minute < from) {
            self.remove(minute);
        }
        while let Some(minute) = self.last().filter(|minute| *minute >= to) {
            self.remove(minute);
        }
    }

    /// The sums of all minutes: one row for each rule and tenant, in no particular order.
    pub fn sums(&self) -> Vec<DayRow> {
        let entries = self.names.entries.iter().filter(|entry| entry.minutes > 0);
        entries
            .map(|entry| DayRow { by: entry.by, name: entry.name.to_string(), counts: entry.sum })
            .collect()
    }

    /// The minutes that began at `from` or later, summed over the rules or tenants that the query selects.
    pub(crate) fn history(&self, from: u64, selected: &HistoryQuery) -> Vec<HistoryRow> {
        let row = |minute| {
            let counts = self.counts_by_name(minute).map(|(by, name, counts)| (by, name.as_str(), counts));
            selected.sum(minute, counts)
        };
        self.began_in(from, u64::MAX).filter_map(row).collect()
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.minutes.first_key_value().map(|(minute, _)| *minute)
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.minutes.last_key_value().map(|(minute, _)| *minute)
    }

    /// The minutes that began in `from..to`.
    pub(crate) fn began_in(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        self.minutes.range(from..to.max(from)).map(|(minute, _)| *minute)
    }

    /// The counts of one minute, in no particular order.
    pub(crate) fn counts_by_name(
        &self,
        minute: u64,
    ) -> impl Iterator<Item = (GroupBy, &SmolStr, OutcomeCounts)> {
        let bytes = self.minutes.get(&minute).map_or(&[][..], |packed| &packed.bytes);
        PackedReader::of(bytes).map(|(number, counts)| {
            let entry = &self.names.entries[number as usize];
            (entry.by, &entry.name, counts)
        })
    }
}

impl NameIndex {
    fn number_of(&mut self, by: GroupBy, name: &str) -> u32 {
        let key = (by, SmolStr::new(name));
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        if self.numbers.len() >= MOST_NAMES && name != OVERFLOW {
            return self.number_of(by, OVERFLOW);
        }
        let entry = IndexedName { by, name: key.1.clone(), minutes: 0, sum: OutcomeCounts::default() };
        let number = if let Some(number) = self.free.pop() {
            self.entries[number as usize] = entry;
            number
        } else {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("names are bounded")
        };
        self.numbers.insert(key, number);
        number
    }

    /// Adds a minute to the sum of a name.
    fn add_minute(&mut self, number: u32, counts: OutcomeCounts) {
        let entry = &mut self.entries[number as usize];
        entry.minutes += 1;
        entry.sum = entry.sum.wrapping_add(counts);
    }

    /// Subtracts a minute from the sums. Names that are in no other minute are removed.
    fn remove_minute(&mut self, bytes: &[u8]) {
        for (number, counts) in PackedReader::of(bytes) {
            let entry = &mut self.entries[number as usize];
            entry.minutes -= 1;
            entry.sum = entry.sum.wrapping_sub(counts);
            if entry.minutes == 0 {
                self.numbers.remove(&(entry.by, std::mem::take(&mut entry.name)));
                self.free.push(number);
            }
        }
    }
}

/// Encodes a minute. In the first number of each name, the lowest three bits say which counts follow, and the other
/// bits are the distance from the name before.
fn pack(numbered: &BTreeMap<u32, OutcomeCounts>) -> Box<[u8]> {
    let (mut bytes, mut next) = (Vec::new(), 0);
    for (&number, counts) in numbered {
        let counts = [counts.allowed, counts.denied, counts.shadow];
        let mask = (0..3).filter(|&which| counts[which] > 0).fold(0, |mask, which| mask | 1 << which);
        write(&mut bytes, u64::from(number - next) << 3 | mask);
        for count in counts.into_iter().filter(|count| *count > 0) {
            write(&mut bytes, count);
        }
        next = number + 1;
    }
    bytes.into()
}

/// Writes a variable-length number: seven bits per byte, the lowest first. The highest bit says that more bytes follow.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Decodes the bytes that [`pack`] wrote.
struct PackedReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    next: u32,
}

impl<'a> PackedReader<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), next: 0 }
    }

    fn read(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = *self.bytes.next()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }
}

impl Iterator for PackedReader<'_> {
    type Item = (u32, OutcomeCounts);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.read()?;
        let number = self.next + (first >> 3) as u32;
        self.next = number + 1;
        let mut count = |bit: u64| if first & bit == 0 { Some(0) } else { self.read() };
        let counts = OutcomeCounts { allowed: count(1)?, denied: count(2)?, shadow: count(4)? };
        Some((number, counts))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(minutes: &PackedMinutes) -> usize {
        minutes.minutes.values().map(|packed| packed.bytes.len() + 64).sum()
    }

    fn sorted(minutes: &PackedMinutes) -> Vec<(GroupBy, String, OutcomeCounts)> {
        let mut sums: Vec<_> = minutes.sums().into_iter().map(|row| (row.by, row.name, row.counts)).collect();
        sums.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        sums
    }

    #[test]
    fn a_day_of_a_thousand_tenants_takes_less_than_ten_megabytes() {
        let mut minutes = PackedMinutes::default();
        let names: Vec<String> = (0..1_000).map(|tenant| format!("tenant-{tenant:06}")).collect();
        for minute in 0..1_440 {
            let counts =
                |at: usize| OutcomeCounts { allowed: 500 + at as u64, denied: minute % 7, shadow: 0 };
            let rows =
                names.iter().enumerate().map(|(at, name)| (GroupBy::Tenant, name.as_str(), counts(at)));
            minutes.put(60 * minute, 0, rows);
        }
        assert_eq!(minutes.sums().len(), 1_000);
        assert!(bytes(&minutes) < 10_000_000, "{} bytes", bytes(&minutes));
    }

    #[test]
    fn names_beyond_the_bound_are_summed_as_one_and_those_that_are_gone_make_room() {
        let mut minutes = PackedMinutes::default();
        let counts = OutcomeCounts { allowed: 1, ..OutcomeCounts::default() };
        let names: Vec<String> = (0..3 * MOST_NAMES).map(|name| format!("rule-{name}")).collect();
        for (minute, names) in names.chunks(MOST_NAMES / 2).enumerate() {
            minutes.put(
                60 * minute as u64,
                0,
                names.iter().map(|name| (GroupBy::Rule, name.as_str(), counts)),
            );
        }
        let sums = minutes.sums();
        assert!(sums.len() <= MOST_NAMES + 1);
        assert_eq!(sums.iter().map(|row| row.counts.allowed).sum::<u64>(), 3 * MOST_NAMES as u64);
        minutes.retain(600, 600);
        assert!(minutes.sums().is_empty() && minutes.names.numbers.is_empty());
        minutes.put(600, 0, [(GroupBy::Rule, "new", counts)]);
        assert_eq!(sorted(&minutes), [(GroupBy::Rule, "new".to_owned(), counts)]);
    }

    proptest! {
        #[test]
        fn it_says_what_was_put_whatever_is_replaced_and_removed(
            steps in prop::collection::vec((0u64..5, prop::collection::vec((0u8..6, any::<[u32; 3]>()), 0..8)), 1..40),
        ) {
            let mut minutes = PackedMinutes::default();
            let mut model: BTreeMap<u64, BTreeMap<(GroupBy, String), OutcomeCounts>> = BTreeMap::new();
            for (minute, rows) in steps {
                let rows: Vec<_> = rows.into_iter().map(|(name, [allowed, denied, shadow])| {
                    let by = if name % 2 == 0 { GroupBy::Rule } else { GroupBy::Tenant };
                    let counts = OutcomeCounts { allowed: allowed.into(), denied: denied.into(), shadow: shadow.into() };
                    (by, format!("name {name}"), counts)
                }).collect();
                if rows.is_empty() {
                    minutes.remove(minute);
                    model.remove(&minute);
                    continue;
                }
                minutes.put(minute, 0, rows.iter().map(|(by, name, counts)| (*by, name.as_str(), *counts)));
                let mut counts_by_name: BTreeMap<_, OutcomeCounts> = BTreeMap::new();
                for (by, name, counts) in rows {
                    *counts_by_name.entry((by, name)).or_default() += counts;
                }
                model.insert(minute, counts_by_name);
            }
            let mut sums: BTreeMap<(GroupBy, String), OutcomeCounts> = BTreeMap::new();
            for (minute, counts_by_name) in &model {
                let read: BTreeMap<_, _> = minutes
                    .counts_by_name(*minute)
                    .map(|(by, name, counts)| ((by, name.to_string()), counts))
                    .collect();
                prop_assert_eq!(&read, counts_by_name);
                for (key, counts) in counts_by_name {
                    *sums.entry(key.clone()).or_default() += *counts;
                }
            }
            let sums: Vec<_> = sums.into_iter().map(|((by, name), counts)| (by, name, counts)).collect();
            prop_assert_eq!(sorted(&minutes), sums);
        }
    }
}
