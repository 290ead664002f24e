//! Who counts most, in bounded memory: the space-saving sketch of Metwally, Agrawal and El Abbadi.
//!
//! Whoever holds more than a `1 / capacity` share of the total is certain to be in it, and no figure is too high by
//! more than that share.

use foldhash::{HashMap, HashMapExt};

/// One of those who count most.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Hitter {
    pub(crate) fingerprint: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) count: u64,
    /// By how much the count may be too high: what the one whose place it took had.
    pub(crate) error: u64,
}

/// A heap of counters, the smallest on top, with a map from fingerprint to place.
#[derive(Debug)]
pub(crate) struct Sketch {
    capacity: usize,
    heap: Vec<Hitter>,
    places: HashMap<u64, usize>,
}

impl Sketch {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, heap: Vec::with_capacity(capacity), places: HashMap::with_capacity(capacity) }
    }

    /// Adds to whoever this is. The name is asked for only where it is not known yet.
    pub(crate) fn add(&mut self, fingerprint: u64, weight: u64, name: impl FnOnce() -> Option<Box<str>>) {
        let place = match self.places.get(&fingerprint) {
            Some(&place) => place,
            None if self.heap.len() < self.capacity => self.seat(fingerprint, name()),
            None => self.unseat_smallest(fingerprint, name()),
        };
        self.heap[place].count = self.heap[place].count.saturating_add(weight);
        self.sink(place);
    }

    /// The `most` largest, the largest first.
    pub(crate) fn top(&self, most: usize) -> Vec<Hitter> {
        let mut all: Vec<_> = self.heap.iter().filter(|hitter| hitter.count > 0).cloned().collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then(a.fingerprint.cmp(&b.fingerprint)));
        all.truncate(most);
        all
    }

    /// Halves every figure, so that what is gone fades and what is going on stands out.
    pub(crate) fn fade(&mut self) {
        for hitter in &mut self.heap {
            hitter.count /= 2;
            hitter.error /= 2;
        }
    }

    fn seat(&mut self, fingerprint: u64, name: Option<Box<str>>) -> usize {
        let place = self.heap.len();
        self.heap.push(Hitter { fingerprint, name, count: 0, error: 0 });
        self.places.insert(fingerprint, place);
        self.rise(place)
    }

    fn unseat_smallest(&mut self, fingerprint: u64, name: Option<Box<str>>) -> usize {
        let smallest = &mut self.heap[0];
        self.places.remove(&smallest.fingerprint);
        *smallest = Hitter { fingerprint, name, count: smallest.count, error: smallest.count };
        self.places.insert(fingerprint, 0);
        0
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place].count < self.heap[(place - 1) / 2].count {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let smaller = children.into_iter().filter(|&child| child < self.heap.len());
            let Some(child) = smaller.min_by_key(|&child| self.heap[child].count) else { return };
            if self.heap[place].count <= self.heap[child].count {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.places.insert(self.heap[one].fingerprint, one);
        self.places.insert(self.heap[other].fingerprint, other);
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
        assert_eq!(sketch.places.len(), 128);
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
        fn whoever_holds_more_than_its_share_is_in_it(
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
