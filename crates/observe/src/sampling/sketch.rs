//! Heavy hitters in bounded memory: the space-saving sketch of Metwally, Agrawal and El Abbadi.
//!
//! A key with more than a `1 / capacity` share of the total is certain to be in the sketch, and no count is too high by
//! more than that share.

use foldhash::{HashMap, HashMapExt};

/// A key of the sketch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HeavyHitter {
    pub(crate) fingerprint: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) count: u64,
    /// By how much the count may be too high: the count of the key that it replaced.
    pub(crate) error: u64,
}

/// A heap of counters with the smallest on top, and a map from fingerprint to position.
#[derive(Debug)]
pub(crate) struct Sketch {
    capacity: usize,
    heap: Vec<HeavyHitter>,
    positions: HashMap<u64, usize>,
}

impl Sketch {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, heap: Vec::with_capacity(capacity), positions: HashMap::with_capacity(capacity) }
    }

    /// Adds to the count of a key. `name` is called only if the key is not in the sketch yet.
    pub(crate) fn add(&mut self, fingerprint: u64, weight: u64, name: impl FnOnce() -> Option<Box<str>>) {
        let position = match self.positions.get(&fingerprint) {
            Some(&position) => position,
            None if self.heap.len() < self.capacity => self.insert(fingerprint, name()),
            None => self.replace_smallest(fingerprint, name()),
        };
        self.heap[position].count = self.heap[position].count.saturating_add(weight);
        self.sift_down(position);
    }

    /// The `most` largest, the largest first.
    pub(crate) fn top(&self, most: usize) -> Vec<HeavyHitter> {
        let mut all: Vec<_> = self.heap.iter().filter(|hitter| hitter.count > 0).cloned().collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then(a.fingerprint.cmp(&b.fingerprint)));
        all.truncate(most);
        all
    }

    /// Halves every count, so that recent traffic outweighs older traffic.
    pub(crate) fn fade(&mut self) {
        for hitter in &mut self.heap {
            hitter.count /= 2;
            hitter.error /= 2;
        }
    }

    fn insert(&mut self, fingerprint: u64, name: Option<Box<str>>) -> usize {
        let position = self.heap.len();
        self.heap.push(HeavyHitter { fingerprint, name, count: 0, error: 0 });
        self.positions.insert(fingerprint, position);
        self.sift_up(position)
    }

    fn replace_smallest(&mut self, fingerprint: u64, name: Option<Box<str>>) -> usize {
        let smallest = &mut self.heap[0];
        self.positions.remove(&smallest.fingerprint);
        *smallest = HeavyHitter { fingerprint, name, count: smallest.count, error: smallest.count };
        self.positions.insert(fingerprint, 0);
        0
    }

    fn sift_up(&mut self, mut position: usize) -> usize {
        while position > 0 && self.heap[position].count < self.heap[(position - 1) / 2].count {
            self.swap(position, (position - 1) / 2);
            position = (position - 1) / 2;
        }
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let children = [2 * position + 1, 2 * position + 2];
            let smaller = children.into_iter().filter(|&child| child < self.heap.len());
            let Some(child) = smaller.min_by_key(|&child| self.heap[child].count) else { return };
            if self.heap[position].count <= self.heap[child].count {
                return;
            }
            self.swap(position, child);
            position = child;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.positions.insert(self.heap[one].fingerprint, one);
        self.positions.insert(self.heap[other].fingerprint, other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(stream: &[u16], capacity: usize) -> Sketch {
        let mut sketch = Sketch::new(capacity);
        for &who in stream {
            sketch.add(u64::from(who), 1, || None);
        }
        sketch
    }

    #[test]
    fn a_million_passers_by_do_not_hide_the_one_who_comes_back() {
        let mut sketch = Sketch::new(128);
        for passer_by in 0..1_000_000u64 {
            sketch.add(passer_by + 10, 1, || None);
            if passer_by % 50 == 0 {
                sketch.add(7, 1, || Some("regular".into()));
            }
        }
        let first = &sketch.top(1)[0];
        assert_eq!((first.fingerprint, first.name.as_deref()), (7, Some("regular")));
        assert_eq!(sketch.heap.len(), 128);
        assert_eq!(sketch.positions.len(), 128);
    }

    #[test]
    fn fading_halves_what_is_gone() {
        let mut sketch = counted(&[1; 8], 4);
        sketch.fade();
        assert_eq!(sketch.top(1)[0].count, 4);
    }

    proptest! {
        #[test]
        fn no_figure_is_too_low_nor_too_high_by_more_than_its_error(
            stream in prop::collection::vec(0u16..40, 1..600),
            capacity in 1usize..24,
        ) {
            let sketch = counted(&stream, capacity);
            for hitter in sketch.top(capacity) {
                let truly = stream.iter().filter(|&&who| u64::from(who) == hitter.fingerprint).count() as u64;
                prop_assert!(hitter.count >= truly);
                prop_assert!(hitter.count - hitter.error <= truly);
                prop_assert!(hitter.error <= stream.len() as u64 / capacity as u64);
            }
        }

        #[test]
        fn a_key_with_more_than_its_share_is_in_the_sketch(
            stream in prop::collection::vec(0u16..12, 1..400),
            capacity in 2usize..10,
        ) {
            let sketch = counted(&stream, capacity);
            let held: Vec<_> = sketch.top(capacity).iter().map(|hitter| hitter.fingerprint).collect();
            for who in 0u16..12 {
                let truly = stream.iter().filter(|&&other| other == who).count();
                prop_assert!(truly <= stream.len() / capacity || held.contains(&u64::from(who)));
            }
        }
    }
}
