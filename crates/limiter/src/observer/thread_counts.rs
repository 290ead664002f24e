//! What one thread counts: a small table that it alone writes and the flusher reads.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::Micros;

use super::sampler::Sampler;

/// Cells in a lane; a power of two.
const CELLS: usize = 1_024;
/// How many neighbours are tried before a fingerprint counts as not there.
const PROBES: usize = 8;
/// Under load, a thread looks closely at 2,000 denials a second.
const DENIALS_US: u64 = 500;
/// And at 1,000 others: enough to know who spends most.
const OTHERS_US: u64 = 1_000;
/// The fingerprint of a cell that is free.
const FREE: u64 = 0;

/// The counts of one thread. A cell that is taken stays taken; what finds no cell is counted elsewhere, slowly.
#[derive(Debug)]
pub(crate) struct Lane {
    cells: Box<[Cell; CELLS]>,
    /// What the flusher has already taken from each cell. Apart from the cells, so that it does not share their
    /// cache lines.
    taken: Box<[AtomicU64]>,
    /// For denials and for all others. Denials are looked at on a budget of their own: they are what operators ask
    /// about.
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

    /// Not an atomic addition: only one thread writes, and a plain store costs a tenth.
    #[inline]
    fn add_one(&self) {
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Lane {
    /// Out of the way: it is made once per thread, and its cells would otherwise be laid out on the stack of every
    /// decision.
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

    /// Counts one, where the fingerprint has a cell. Only for the thread that owns the lane.
    pub(crate) fn count(&self, fingerprint: u64) -> bool {
        self.neighbours(fingerprint).find(|cell| cell.holds(fingerprint)).map(Cell::add_one).is_some()
    }

    /// Gives the fingerprint a cell, where there is one. Only for the thread that owns the lane.
    pub(crate) fn make_room(&self, fingerprint: u64) -> bool {
        let free = self.neighbours(fingerprint).find(|cell| cell.fingerprint.load(Ordering::Relaxed) == FREE);
        free.map(|cell| cell.fingerprint.store(fingerprint, Ordering::Release)).is_some()
    }

    /// Counts one where the first cell is the fingerprint's and the decision need not be looked at closely. Where either
    /// is not so, nothing was done.
    #[inline]
    pub(crate) fn count_unless_picked(&self, fingerprint: u64, allowed: bool, now: Micros) -> bool {
        let first = self.cell(fingerprint, 0);
        let plain = first.holds(fingerprint) && self.sampler(allowed).skips(now);
        if plain {
            first.add_one();
        }
        plain
    }

    /// What picks the decisions that are looked at closely.
    #[inline]
    pub(crate) fn sampler(&self, allowed: bool) -> &Sampler {
        &self.samplers[usize::from(allowed)]
    }

    /// Hands over what was counted since the last time. Only one flusher may run at a time.
    pub(crate) fn drain(&self, mut take: impl FnMut(u64, u64)) {
        for (cell, taken) in self.cells.iter().zip(&self.taken) {
            // A cell whose name is not seen yet keeps its count for the next time.
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
        let lane = Lane::new();
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
        let lane = Lane::new();
        assert!((1..=PROBES as u64).all(|print| lane.make_room(print)));
        assert!(!lane.make_room(99));
    }
}
