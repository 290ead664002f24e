//! The counts of one thread: a small table that only this thread writes and that the flusher reads.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::Micros;

use super::sampler::Sampler;

/// Cells in a table; a power of two.
const CELLS: usize = 1_024;
/// How many neighbouring cells are searched for a fingerprint.
const PROBES: usize = 8;
/// The gap between sampled denials under load: 2,000 a second for each thread.
const DENIALS_US: u64 = 500;
/// The gap between other samples under load: 1,000 a second, enough to know who spends most.
const OTHERS_US: u64 = 1_000;
/// The fingerprint of a cell that is free.
const FREE: u64 = 0;

/// The counts of one thread. A cell that is taken stays taken. A series without a cell is counted by the observer, which is
/// slower.
#[derive(Debug)]
pub(crate) struct ThreadCounts {
    cells: Box<[Cell; CELLS]>,
    /// The counts that the flusher has already read from each cell. Not in the cells, so that they share no cache lines.
    taken: Box<[AtomicU64]>,
    /// One for denials and one for all other decisions. Denials have a separate budget, because operators ask about them.
    samplers: [Sampler; 2],
}

#[derive(Debug)]
struct Cell {
    fingerprint: AtomicU64,
    count: AtomicU64,
}

impl Cell {
    #[inline]
    fn holds(&self, fingerprint: u64) -> bool {
        self.fingerprint.load(Ordering::Relaxed) == fingerprint
    }

    /// A load and a store, not an atomic addition: only one thread writes, and this costs a tenth.
    #[inline]
    fn add_one(&self) {
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl ThreadCounts {
    /// Not inlined, because it runs once per thread and its cells would take stack in every decision.
    #[cold]
    #[inline(never)]
    pub(crate) fn new() -> Self {
        Self {
            cells: Box::new(
                [const { Cell { fingerprint: AtomicU64::new(FREE), count: AtomicU64::new(0) } }; CELLS],
            ),
            taken: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            samplers: [Sampler::every(DENIALS_US), Sampler::every(OTHERS_US)],
        }
    }

    /// Adds one. False if the fingerprint has no cell. Only for the thread that owns the table.
    pub(crate) fn count(&self, fingerprint: u64) -> bool {
        self.neighbours(fingerprint).find(|cell| cell.holds(fingerprint)).map(Cell::add_one).is_some()
    }

    /// Gives the fingerprint a cell. False if there is no free one. Only for the thread that owns the table.
    pub(crate) fn make_room(&self, fingerprint: u64) -> bool {
        let free = self.neighbours(fingerprint).find(|cell| cell.fingerprint.load(Ordering::Relaxed) == FREE);
        free.map(|cell| cell.fingerprint.store(fingerprint, Ordering::Release)).is_some()
    }

    /// Adds one if the first cell has the fingerprint and the decision is not picked as a sample. False if nothing was added.
    #[inline]
    pub(crate) fn count_unless_picked(&self, fingerprint: u64, allowed: bool, now: Micros) -> bool {
        let first = self.cell(fingerprint, 0);
        let plain = first.holds(fingerprint) && self.sampler(allowed).skips(now);
        if plain {
            first.add_one();
        }
        plain
    }

    /// Picks the decisions that are sampled.
    #[inline]
    pub(crate) fn sampler(&self, allowed: bool) -> &Sampler {
        &self.samplers[usize::from(allowed)]
    }

    /// Calls `take` with what was counted since the last call. Only one flusher may run at a time.
    pub(crate) fn drain(&self, mut take: impl FnMut(u64, u64)) {
        for (cell, taken) in self.cells.iter().zip(&self.taken) {
            // A cell whose fingerprint is not visible yet is read the next time.
            let fingerprint = cell.fingerprint.load(Ordering::Acquire);
            if fingerprint == FREE {
                continue;
            }
            let count = cell.count.load(Ordering::Relaxed);
            let more = count - taken.swap(count, Ordering::Relaxed);
            if more > 0 {
                take(fingerprint, more);
            }
        }
    }

    fn neighbours(&self, fingerprint: u64) -> impl Iterator<Item = &Cell> {
        (0..PROBES).map(move |step| self.cell(fingerprint, step))
    }

    #[inline]
    fn cell(&self, fingerprint: u64, step: usize) -> &Cell {
        &self.cells[((fingerprint >> 54) as usize + step) % CELLS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_handed_over_once() {
        let lane = ThreadCounts::new();
        let print = 7 << 54 | 5;
        assert!(!lane.count(print), "it has no cell yet");
        assert!(lane.make_room(print));
        assert!(lane.count(print) && lane.count(print));
        let mut seen = Vec::new();
        lane.drain(|print, more| seen.push((print, more)));
        assert_eq!(seen, [(print, 2)]);
        lane.drain(|print, more| panic!("{print} was handed over twice, with {more}"));
    }

    #[test]
    fn a_crowded_neighbourhood_turns_newcomers_away() {
        let lane = ThreadCounts::new();
        assert!((1..=PROBES as u64).all(|print| lane.make_room(print)));
        assert!(!lane.make_room(99));
    }
}
