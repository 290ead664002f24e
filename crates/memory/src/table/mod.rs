//! The buckets of one shard: an open-addressed table with linear probing.
//!
//! Written by hand because it is faster here than a general map: an entry is less than a cache line, there is no second
//! array, and the table is swept and sampled in place, a few slots at a time.

pub(crate) mod entry;
pub(crate) mod fingerprint;
pub(crate) mod now;
pub(crate) mod permit_room;
pub(crate) mod permits;
pub(crate) mod shard;

use smallvec::SmallVec;

use crate::table::entry::BucketEntry;
use crate::table::fingerprint::Fingerprint;
use crate::table::now::Now;

const MIN_SLOTS: usize = 16;
/// The number of entries that an eviction compares.
const SAMPLE: usize = 16;
/// The number of entries that it compares if those were all nearly empty. A sample of this size finds a fuller entry unless there
/// are very few.
const WIDE_SAMPLE: usize = 512;
/// An entry this full is evicted without a larger sample. Emptier entries count as equally empty.
const FULL_ENOUGH: f64 = 0.5;

/// A set of entries.
#[derive(Debug)]
pub(crate) struct BucketTable {
    /// Free slots have empty entries.
    pub(crate) slots: Vec<BucketEntry>,
    held: usize,
    /// The slot where the next sweep or sample starts. It wraps around.
    cursor: usize,
}

impl BucketTable {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), held: 0, cursor: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.held
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<BucketEntry>()
    }

    pub(crate) fn get_mut(&mut self, fingerprint: Fingerprint) -> Option<&mut BucketEntry> {
        self.position(fingerprint).map(|index| &mut self.slots[index])
    }

    /// Adds an entry whose fingerprint is not in the table.
    pub(crate) fn insert(&mut self, entry: BucketEntry) {
        // A quarter of the slots stays free: otherwise runs of used slots grow long.
        if (self.held + 1) * 4 > self.slots.len() * 3 {
            self.rehash((self.slots.len() + self.slots.len() / 2).max(MIN_SLOTS));
        }
        self.place(entry);
        self.held += 1;
    }

    /// Makes room for `more` entries. Without this, entries in the order of another table would pile up at one end of
    /// this table each time that it grows.
    pub(crate) fn reserve(&mut self, more: usize) {
        let wanted = (self.held + more).div_ceil(3) * 4;
        if wanted > self.slots.len() {
            self.rehash(wanted.max(MIN_SLOTS));
        }
    }

    pub(crate) fn remove(&mut self, fingerprint: Fingerprint) {
        if let Some(index) = self.position(fingerprint) {
            self.remove_at(index);
        }
    }

    /// Removes the full entries among the next `slots` slots, and returns how many.
    pub(crate) fn sweep(&mut self, slots: usize, now: Now) -> usize {
        let mut dropped = 0;
        for _ in 0..slots.min(self.slots.len()) {
            let index = self.cursor % self.slots.len();
            let entry = &self.slots[index];
            if !entry.is_empty() && entry.level(now) >= 1.0 {
                // The slot may now hold the next entry, so the cursor stays.
                self.remove_at(index);
                dropped += 1;
            } else {
                self.cursor = index + 1;
            }
        }
        dropped
    }

    /// Removes the fullest of the next few entries, whose loss gives its key the fewest tokens. Returns how full it
    /// was.
    ///
    /// If all of them are nearly empty, the one of median age is removed. A flood of empty buckets then evicts keys of
    /// the flood: entries from before it are older, and stay; entries that were just added are younger, and stay for
    /// half as many insertions as the table has entries.
    pub(crate) fn evict(&mut self, now: Now) -> Option<f64> {
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
            sample.push((entry.written_at(now), index));
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

    /// The slot where a search begins: `place` scaled to the table, which may have any size.
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

    fn place(&mut self, entry: BucketEntry) {
        let Some(mut index) = self.home(entry.fingerprint()) else { return };
        while !self.slots[index].is_empty() {
            index = self.after(index);
        }
        self.slots[index] = entry;
    }

    /// Frees a slot, and moves back the entries that were pushed past it, so that no search ends early.
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
        self.slots[gap] = BucketEntry::EMPTY;
        self.held -= 1;
    }

    fn held_home(&self, index: usize) -> Option<usize> {
        Some(self.slots[index].fingerprint()).filter(|held| !held.is_none()).and_then(|held| self.home(held))
    }

    fn rehash(&mut self, larger: usize) {
        let old = std::mem::replace(&mut self.slots, vec![BucketEntry::EMPTY; larger]);
        self.cursor = 0;
        for entry in old.into_iter().filter(|entry| !entry.is_empty()) {
            self.place(entry);
        }
    }
}

/// Whether `home` is in the circular range (`gap`, `index`]. Such an entry is found without filling the gap.
const fn lies_within(home: usize, gap: usize, index: usize) -> bool {
    if gap < index { gap < home && home <= index } else { gap < home || home <= index }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use proptest::prelude::*;
    use spile_core::{Amount, Bucket, Limit, Micros, NamedLimit, QuotaWindows, Shape, Window, Windows};

    use super::*;

    const NOW: Now = Now::at(Micros::from_secs(1));

    /// The fingerprint of a rate's bucket.
    fn fingerprint(place: u64, check: u64) -> Fingerprint {
        Fingerprint { place, check: check * (NamedLimit::SHAPE_BITS + 1) + Shape::RATE }
    }

    fn entry(fingerprint: Fingerprint, held: i64) -> BucketEntry {
        let limit = Limit::per_day(10).build().expect("in bounds");
        let now = Micros::from_secs(1);
        BucketEntry::new(fingerprint, Bucket::new(Amount::from_micro(held), now), &limit, Now::at(now))
    }

    /// One window that never ends.
    #[derive(Debug)]
    struct Always;

    impl std::fmt::Display for Always {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("ever")
        }
    }

    impl Windows for Always {
        fn window_at(&self, _: Micros) -> Window {
            Window { start: Micros::new(0), end: Micros::new(u64::MAX) }
        }

        fn period(&self) -> Duration {
            Duration::MAX
        }

        fn longest(&self) -> Duration {
            Duration::MAX
        }
    }

    proptest! {
        /// Few distinct places, so that runs are long and wrap around the end.
        #[test]
        fn the_table_holds_what_a_map_would(ops in prop::collection::vec((0u8..3, 0u64..24, 0u64..4), 1..400)) {
            let (mut table, mut map) = (BucketTable::new(), HashMap::new());
            for (step, (op, place, check)) in ops.into_iter().enumerate() {
                let id = fingerprint((place << 59).wrapping_sub(1 << 58), check);
                match op {
                    0 | 1 => {
                        let held = i64::try_from(step).expect("few steps");
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
                    let found = table.get_mut(Fingerprint { place, check }).map(|e| e.bucket().amount().micro());
                    prop_assert_eq!(found, Some(held));
                }
            }
        }
    }

    #[test]
    fn an_eviction_takes_the_fullest_of_a_small_table() {
        let mut table = BucketTable::new();
        for (check, held) in [(1, 2_000_000), (2, 9_000_000), (3, 0)] {
            table.insert(entry(fingerprint(check << 60, check), held));
        }
        assert_eq!(table.evict(NOW), Some(0.9));
        assert!(table.get_mut(fingerprint(2 << 60, 2)).is_none());
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn an_eviction_among_drained_entries_takes_the_one_of_middle_age() {
        let rate = Limit::per_day(10).build().expect("in bounds");
        let quota = Limit::per_window(10, QuotaWindows::new(Always)).build().expect("in bounds");
        for limit in [rate, quota] {
            let mut table = BucketTable::new();
            let place = |place: u64| Fingerprint { place: place << 60, check: limit.shape().code() };
            for (check, written_at) in [(1_u64, 1), (2, 3), (3, 2)] {
                let now = Micros::from_secs(written_at);
                let bucket = Bucket::holding(&limit, Amount::from_micro(check.cast_signed()), now);
                table.insert(BucketEntry::new(place(check), bucket, &limit, Now::at(now)));
            }
            assert!(table.evict(Now::at(Micros::from_secs(3))).is_some());
            assert!(table.get_mut(place(3)).is_none());
            assert_eq!(table.len(), 2);
        }
    }

    #[test]
    fn a_sweep_drops_what_is_full_again_and_nothing_else() {
        let mut table = BucketTable::new();
        table.insert(entry(fingerprint(1 << 60, 1), 10_000_000));
        table.insert(entry(fingerprint(2 << 60, 2), 9_999_999));
        let slots = table.slots.len();
        assert_eq!(table.sweep(slots, NOW), 1);
        assert!(table.get_mut(fingerprint(2 << 60, 2)).is_some());
        assert_eq!(table.sweep(slots, Now::at(Micros::from_secs(2))), 1);
        assert_eq!(table.len(), 0);
    }
}
