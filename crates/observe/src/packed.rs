//! Minutes of many rules and tenants in little memory, with their sum at hand.
//!
//! A name is held once. A minute is a run of bytes: for each name its number, as the distance to the one before, and the
//! counts that are not zero. A tenant takes some four bytes of a minute, so that a day of a thousand takes 6 MB.

use std::collections::BTreeMap;

use foldhash::HashMap;
use smol_str::SmolStr;

use crate::analytics::DayRow;
use crate::book::OVERFLOW;
use crate::minutes::By;
use crate::tally::Tally;

/// The most names that are told apart in all minutes together. What is beyond is summed as `__overflow__`.
const MOST_NAMES: usize = 10_000;

/// Minutes by when they began, in seconds since the epoch, and the sum of them.
#[derive(Clone, Debug, Default)]
pub struct PackedMinutes {
    names: Names,
    minutes: BTreeMap<u64, Packed>,
}

#[derive(Clone, Debug)]
struct Packed {
    revision: i64,
    bytes: Box<[u8]>,
}

/// Names by number. The number of a name that is in no minute any more is given to another.
#[derive(Clone, Debug, Default)]
struct Names {
    numbers: HashMap<(By, SmolStr), u32>,
    known: Vec<Known>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Known {
    by: By,
    name: SmolStr,
    /// Minutes that it is in.
    minutes: u32,
    sum: Tally,
}

impl PackedMinutes {
    /// The revision under which a minute was put.
    pub fn revision(&self, minute: u64) -> Option<i64> {
        self.minutes.get(&minute).map(|packed| packed.revision)
    }

    /// Puts a minute in place of what was there. A name may come several times; its counts are added.
    pub fn put<'a>(
        &mut self,
        minute: u64,
        revision: i64,
        tallies: impl IntoIterator<Item = (By, &'a str, Tally)>,
    ) {
        let mut numbered: BTreeMap<u32, Tally> = BTreeMap::new();
        for (by, name, tally) in tallies {
            *numbered.entry(self.names.number(by, name)).or_default() += tally;
        }
        for (&number, &tally) in &numbered {
            self.names.enter(number, tally);
        }
        let packed = Packed { revision, bytes: pack(&numbered) };
        if let Some(before) = self.minutes.insert(minute, packed) {
            self.names.leave(&before.bytes);
        }
    }

    /// Forgets a minute.
    pub fn remove(&mut self, minute: u64) {
        if let Some(packed) = self.minutes.remove(&minute) {
            self.names.leave(&packed.bytes);
        }
    }

    /// Forgets the minutes that began before `from`, or at `to` or later.
    pub fn keep(&mut self, from: u64, to: u64) {
        while let Some(minute) = self.first().filter(|minute| *minute < from) {
            self.remove(minute);
        }
        while let Some(minute) = self.last().filter(|minute| *minute >= to) {
            self.remove(minute);
        }
    }

    /// The sum of all minutes, one row for each rule and tenant in no order.
    pub fn sums(&self) -> Vec<DayRow> {
        let known = self.names.known.iter().filter(|known| known.minutes > 0);
        known.map(|known| DayRow { by: known.by, name: known.name.to_string(), tally: known.sum }).collect()
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

    /// What is in one minute, in no order.
    pub(crate) fn tallies(&self, minute: u64) -> impl Iterator<Item = (By, &SmolStr, Tally)> {
        let bytes = self.minutes.get(&minute).map_or(&[][..], |packed| &packed.bytes);
        Unpacked::of(bytes).map(|(number, tally)| {
            let known = &self.names.known[number as usize];
            (known.by, &known.name, tally)
        })
    }
}

impl Names {
    fn number(&mut self, by: By, name: &str) -> u32 {
        let key = (by, SmolStr::new(name));
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        if self.numbers.len() >= MOST_NAMES && name != OVERFLOW {
            return self.number(by, OVERFLOW);
        }
        let known = Known { by, name: key.1.clone(), minutes: 0, sum: Tally::default() };
        let number = if let Some(number) = self.free.pop() {
            self.known[number as usize] = known;
            number
        } else {
            self.known.push(known);
            u32::try_from(self.known.len() - 1).expect("names are bounded")
        };
        self.numbers.insert(key, number);
        number
    }

    /// Counts a name in one more minute.
    fn enter(&mut self, number: u32, tally: Tally) {
        let known = &mut self.known[number as usize];
        known.minutes += 1;
        known.sum = known.sum.wrapping_add(tally);
    }

    /// Takes a minute out of the sums. Names that are in no other are forgotten.
    fn leave(&mut self, bytes: &[u8]) {
        for (number, tally) in Unpacked::of(bytes) {
            let known = &mut self.known[number as usize];
            known.minutes -= 1;
            known.sum = known.sum.wrapping_sub(tally);
            if known.minutes == 0 {
                self.numbers.remove(&(known.by, std::mem::take(&mut known.name)));
                self.free.push(number);
            }
        }
    }
}

/// The bytes of a minute. Three bits say which counts follow, and the rest of the first number how far the name is from
/// the one before.
fn pack(numbered: &BTreeMap<u32, Tally>) -> Box<[u8]> {
    let (mut bytes, mut next) = (Vec::new(), 0);
    for (&number, tally) in numbered {
        let counts = [tally.allowed, tally.denied, tally.shadow];
        let mask = (0..3).filter(|&which| counts[which] > 0).fold(0, |mask, which| mask | 1 << which);
        write(&mut bytes, u64::from(number - next) << 3 | mask);
        for count in counts.into_iter().filter(|count| *count > 0) {
            write(&mut bytes, count);
        }
        next = number + 1;
    }
    bytes.into()
}

/// Seven bits at a time, the lowest first; the highest bit says that more follow.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`pack`] wrote.
struct Unpacked<'a> {
    bytes: std::slice::Iter<'a, u8>,
    next: u32,
}

impl<'a> Unpacked<'a> {
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

impl Iterator for Unpacked<'_> {
    type Item = (u32, Tally);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.read()?;
        let number = self.next + (first >> 3) as u32;
        self.next = number + 1;
        let mut count = |bit: u64| if first & bit == 0 { Some(0) } else { self.read() };
        let tally = Tally { allowed: count(1)?, denied: count(2)?, shadow: count(4)? };
        Some((number, tally))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(minutes: &PackedMinutes) -> usize {
        minutes.minutes.values().map(|packed| packed.bytes.len() + 64).sum()
    }

    fn sorted(minutes: &PackedMinutes) -> Vec<(By, String, Tally)> {
        let mut sums: Vec<_> = minutes.sums().into_iter().map(|row| (row.by, row.name, row.tally)).collect();
        sums.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        sums
    }

    #[test]
    fn a_day_of_a_thousand_tenants_takes_less_than_ten_megabytes() {
        let mut minutes = PackedMinutes::default();
        let names: Vec<String> = (0..1_000).map(|tenant| format!("tenant-{tenant:06}")).collect();
        for minute in 0..1_440 {
            let tally = |at: usize| Tally { allowed: 500 + at as u64, denied: minute % 7, shadow: 0 };
            let rows = names.iter().enumerate().map(|(at, name)| (By::Tenant, name.as_str(), tally(at)));
            minutes.put(60 * minute, 0, rows);
        }
        assert_eq!(minutes.sums().len(), 1_000);
        assert!(bytes(&minutes) < 10_000_000, "{} bytes", bytes(&minutes));
    }

    #[test]
    fn names_beyond_the_bound_are_summed_as_one_and_those_that_are_gone_make_room() {
        let mut minutes = PackedMinutes::default();
        let tally = Tally { allowed: 1, ..Tally::default() };
        let names: Vec<String> = (0..3 * MOST_NAMES).map(|name| format!("rule-{name}")).collect();
        for (minute, names) in names.chunks(MOST_NAMES / 2).enumerate() {
            minutes.put(60 * minute as u64, 0, names.iter().map(|name| (By::Rule, name.as_str(), tally)));
        }
        let sums = minutes.sums();
        assert!(sums.len() <= MOST_NAMES + 1);
        assert_eq!(sums.iter().map(|row| row.tally.allowed).sum::<u64>(), 3 * MOST_NAMES as u64);
        minutes.keep(600, 600);
        assert!(minutes.sums().is_empty() && minutes.names.numbers.is_empty());
        minutes.put(600, 0, [(By::Rule, "new", tally)]);
        assert_eq!(sorted(&minutes), [(By::Rule, "new".to_owned(), tally)]);
    }

    proptest! {
        #[test]
        fn it_says_what_was_put_whatever_is_replaced_and_removed(
            steps in prop::collection::vec((0u64..5, prop::collection::vec((0u8..6, any::<[u32; 3]>()), 0..8)), 1..40),
        ) {
            let mut minutes = PackedMinutes::default();
            let mut model: BTreeMap<u64, BTreeMap<(By, String), Tally>> = BTreeMap::new();
            for (minute, rows) in steps {
                let rows: Vec<_> = rows.into_iter().map(|(name, [allowed, denied, shadow])| {
                    let by = if name % 2 == 0 { By::Rule } else { By::Tenant };
                    let tally = Tally { allowed: allowed.into(), denied: denied.into(), shadow: shadow.into() };
                    (by, format!("name {name}"), tally)
                }).collect();
                if rows.is_empty() {
                    minutes.remove(minute);
                    model.remove(&minute);
                    continue;
                }
                minutes.put(minute, 0, rows.iter().map(|(by, name, tally)| (*by, name.as_str(), *tally)));
                let mut tallies: BTreeMap<_, Tally> = BTreeMap::new();
                for (by, name, tally) in rows {
                    *tallies.entry((by, name)).or_default() += tally;
                }
                model.insert(minute, tallies);
            }
            let mut sums: BTreeMap<(By, String), Tally> = BTreeMap::new();
            for (minute, tallies) in &model {
                let read: BTreeMap<_, _> = minutes
                    .tallies(*minute)
                    .map(|(by, name, tally)| ((by, name.to_string()), tally))
                    .collect();
                prop_assert_eq!(&read, tallies);
                for (key, tally) in tallies {
                    *sums.entry(key.clone()).or_default() += *tally;
                }
            }
            let sums: Vec<_> = sums.into_iter().map(|((by, name), tally)| (by, name, tally)).collect();
            prop_assert_eq!(sorted(&minutes), sums);
        }
    }
}
