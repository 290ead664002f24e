//! Where one shard keeps its buckets: an open-addressed table with linear probing.
//!
//! Made by hand because it measures better than a general map here: entries are one cache line or less, there
//! is no second array to miss on, and it must be swept and sampled in place, a few slots at a time.

use smallvec::SmallVec;
use spile_core::Micros;

use crate::entry::Entry;
use crate::fingerprint::Fingerprint;

const SMALLEST: usize = 16;
/// How many held entries an eviction compares.
const SAMPLE: usize = 16;
/// How many it compares if those were all nearly drained: among so many, a fuller one is found if there are any
/// to speak of.
const WIDE_SAMPLE: usize = 512;
/// How full an entry must be to be forgotten without looking further. Emptier ones count as equally drained.
const FULL_ENOUGH: f64 = 0.5;

/// A bounded set of entries.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Entry>,
    held: usize,
    /// The next slot that a sweep or a sample looks at; it goes round and round.
    cursor: usize,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), held: 0, cursor: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.held
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Entry>()
    }

    pub(crate) const fn slots(&self) -> &[Entry] {
        self.slots.as_slice()
    }

    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<&Entry> {
        self.position(fingerprint).map(|index| &self.slots[index])
    }

    pub(crate) fn get_mut(&mut self, fingerprint: Fingerprint) -> Option<&mut Entry> {
        self.position(fingerprint).map(|index| &mut self.slots[index])
    }

    /// Adds an entry whose fingerprint is not there yet.
    pub(crate) fn insert(&mut self, entry: Entry) {
        // A quarter is kept free: beyond that, runs of held slots grow long.
        if (self.held + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.place(entry);
        self.held += 1;
    }

    /// Makes room for so many more. Entries that come in the order of another table would else pile up at one end of a
    /// small one, again and again as it grows.
    pub(crate) fn reserve(&mut self, more: usize) {
        let wanted = (self.held + more).div_ceil(3) * 4;
        if wanted > self.slots.len() {
            self.rehash(wanted.max(SMALLEST));
        }
    }

    pub(crate) fn remove(&mut self, fingerprint: Fingerprint) {
        if let Some(index) = self.position(fingerprint) {
            self.remove_at(index);
        }
    }

    /// Drops those of the next `slots` slots that are full again, and says how many.
    pub(crate) fn sweep(&mut self, slots: usize, now: Micros) -> usize {
        let mut dropped = 0;
        for _ in 0..slots.min(self.slots.len()) {
            let index = self.cursor % self.slots.len();
            let entry = &self.slots[index];
            if !entry.is_empty() && entry.level(now) >= 1.0 {
                // The slot now holds its neighbour, which is looked at next.
                self.remove_at(index);
                dropped += 1;
            } else {
                self.cursor = index + 1;
            }
        }
        dropped
    }

    /// Drops the fullest of the next few entries: the one whose loss gives its key the least. Says how full it was.
    ///
    /// If all of them are nearly drained, the one of middle age goes. A flood of drained keys then evicts keys of the
    /// flood: those that were there before it are older, and stay; those that have just come are
    /// younger, and stay for half as many insertions as the table has entries.
    pub(crate) fn evict(&mut self, now: Micros) -> Option<f64> {
        let slots = self.slots.len();
        let mut fullest: Option<(usize, f64)> = None;
        let mut sample: SmallVec<[(u64, usize); WIDE_SAMPLE]> = SmallVec::new();
        for step in 0..slots {
            let index = (self.cursor + step) % slots;
            let entry = &self.slots[index];
            if entry.is_empty() {
                continue;
            }
            let level = entry.level(now);
            if fullest.is_none_or(|(_, best)| level > best) {
                fullest = Some((index, level));
            }
            sample.push((entry.written_at(), index));
            let found = fullest.is_some_and(|(_, best)| best >= FULL_ENOUGH);
            if sample.len() == WIDE_SAMPLE || (sample.len() >= SAMPLE && found) {
                self.cursor = index + 1;
                break;
            }
        }
        let (mut index, mut level) = fullest?;
        if level < FULL_ENOUGH {
            let middle = sample.len() / 2;
            index = sample.select_nth_unstable(middle).1.1;
            level = self.slots[index].level(now);
        }
        self.remove_at(index);
        Some(level)
    }

    fn position(&self, fingerprint: Fingerprint) -> Option<usize> {
        let mut index = self.home(fingerprint)?;
        loop {
            let entry = &self.slots[index];
            if entry.fingerprint() == fingerprint {
                return Some(index);
            }
            if entry.is_empty() {
                return None;
            }
            index = self.after(index);
        }
    }

    /// The slot where the search begins: the fingerprint's share of the table, so that any size will do.
    fn home(&self, fingerprint: Fingerprint) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        Some(((u128::from(fingerprint.place) * self.slots.len() as u128) >> 64) as usize)
    }

    const fn after(&self, index: usize) -> usize {
        let next = index + 1;
        if next == self.slots.len() { 0 } else { next }
    }

    fn place(&mut self, entry: Entry) {
        let Some(mut index) = self.home(entry.fingerprint()) else { return };
        while !self.slots[index].is_empty() {
            index = self.after(index);
        }
        self.slots[index] = entry;
    }

    /// Frees a slot, and moves back whoever was pushed past it, so that no search ends early.
    fn remove_at(&mut self, index: usize) {
        let mut gap = index;
        let mut next = self.after(gap);
        while let Some(home) = self.held_home(next) {
            if !lies_within(home, gap, next) {
                self.slots[gap] = self.slots[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.slots[gap] = Entry::EMPTY;
        self.held -= 1;
    }

    fn held_home(&self, index: usize) -> Option<usize> {
        let entry = &self.slots[index];
        if entry.is_empty() { None } else { self.home(entry.fingerprint()) }
    }

    fn grow(&mut self) {
        self.rehash((self.slots.len() + self.slots.len() / 2).max(SMALLEST));
    }

    fn rehash(&mut self, larger: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Entry::EMPTY; larger]);
        self.cursor = 0;
        for entry in old.into_iter().filter(|entry| !entry.is_empty()) {
            self.place(entry);
        }
    }
}

/// Whether `home` lies in the circular range (`gap`, `index`]: such an entry is found without filling the gap.
const fn lies_within(home: usize, gap: usize, index: usize) -> bool {
    if gap < index { gap < home && home <= index } else { gap < home || home <= index }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use spile_core::{Bucket, Limit, MicroTokens};

    use super::*;

    fn fingerprint(place: u64, check: u64) -> Fingerprint {
        Fingerprint { place, check: check + 1 }
    }

    fn entry(fingerprint: Fingerprint, held: u64) -> Entry {
        let limit = Limit::per_day(10).build().expect("in bounds");
        Entry::new(fingerprint, Bucket::new(MicroTokens::new(held), Micros::from_secs(1)), &limit)
    }

    proptest! {
        /// Few distinct places, so that runs are long and wrap around the end.
        #[test]
        fn the_table_holds_what_a_map_would(ops in prop::collection::vec((0u8..3, 0u64..24, 0u64..4), 1..400)) {
            let (mut table, mut map) = (Table::new(), HashMap::new());
            for (step, (op, place, check)) in ops.into_iter().enumerate() {
                let id = fingerprint((place << 59).wrapping_sub(1 << 58), check);
                match op {
                    0 | 1 => {
                        let held = step as u64;
                        match table.get_mut(id) {
                            Some(known) => *known = entry(id, held),
                            None => table.insert(entry(id, held)),
                        }
                        map.insert((id.place, id.check), held);
                    }
                    _ => {
                        table.remove(id);
                        map.remove(&(id.place, id.check));
                    }
                }
                prop_assert_eq!(table.len(), map.len());
                for (&(place, check), &held) in &map {
                    let found = table.get(Fingerprint { place, check }).map(|e| e.bucket().held().get());
                    prop_assert_eq!(found, Some(held));
                }
            }
        }
    }

    #[test]
    fn an_eviction_takes_the_fullest_of_a_small_table() {
        let mut table = Table::new();
        for (check, held) in [(1, 2_000_000), (2, 9_000_000), (3, 0)] {
            table.insert(entry(fingerprint(check << 60, check), held));
        }
        assert_eq!(table.evict(Micros::from_secs(1)), Some(0.9));
        assert!(table.get(fingerprint(2 << 60, 2)).is_none());
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn an_eviction_among_drained_entries_takes_the_one_of_middle_age() {
        let mut table = Table::new();
        let limit = Limit::per_day(10).build().expect("in bounds");
        for (check, written_at) in [(1, 1), (2, 3), (3, 2)] {
            let bucket = Bucket::new(MicroTokens::new(check), Micros::from_secs(written_at));
            table.insert(Entry::new(fingerprint(check << 60, check), bucket, &limit));
        }
        assert!(table.evict(Micros::from_secs(3)).is_some());
        assert!(table.get(fingerprint(3 << 60, 3)).is_none());
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_sweep_drops_what_is_full_again_and_nothing_else() {
        let mut table = Table::new();
        table.insert(entry(fingerprint(1 << 60, 1), 10_000_000));
        table.insert(entry(fingerprint(2 << 60, 2), 9_999_999));
        let slots = table.slots.len();
        assert_eq!(table.sweep(slots, Micros::from_secs(1)), 1);
        assert!(table.get(fingerprint(2 << 60, 2)).is_some());
        assert_eq!(table.sweep(slots, Micros::from_secs(1) + std::time::Duration::from_secs(1)), 1);
        assert_eq!(table.len(), 0);
    }
}
