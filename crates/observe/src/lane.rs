//! What one thread counts: a small table that it alone writes and the flusher reads.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::Micros;

use crate::sampler::Sampler;
use crate::verdict::Verdict;

/// Cells in a lane; a power of two.
const CELLS: usize = 1_024;
/// How many neighbours are tried before a fingerprint counts as not there.
const PROBES: usize = 8;
/// Under load, a thread looks closely at 10,000 denials a second.
const DENIALS_US: u64 = 100;
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
    /// Denials are looked at on a budget of their own: they are what operators ask about.
    denials: Sampler,
    others: Sampler,
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
    pub(crate) fn new() -> Self {
        Self {
            cells: Box::new(
                [const { Cell { fingerprint: AtomicU64::new(FREE), count: AtomicU64::new(0) } }; CELLS],
            ),
            taken: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            denials: Sampler::every(DENIALS_US),
            others: Sampler::every(OTHERS_US),
        }
    }

    /// Counts one, where the fingerprint has a cell. Only for the thread that owns the lane.
    #[inline]
    pub(crate) fn count(&self, fingerprint: u64) -> bool {
        let first = self.cell(fingerprint, 0);
        if first.holds(fingerprint) {
            first.add_one();
            return true;
        }
        self.count_in_neighbour(fingerprint)
    }

    /// Gives the fingerprint a cell, where there is one. Only for the thread that owns the lane.
    pub(crate) fn make_room(&self, fingerprint: u64) -> bool {
        let free = self.neighbours(fingerprint).find(|cell| cell.fingerprint.load(Ordering::Relaxed) == FREE);
        free.map(|cell| cell.fingerprint.store(fingerprint, Ordering::Release)).is_some()
    }

    /// How many decisions this one stands for, where it is to be looked at closely.
    #[inline]
    pub(crate) fn pick(&self, verdict: Verdict, now: Micros) -> Option<u64> {
        match verdict {
            Verdict::Denied => self.denials.pick(now),
            _ => self.others.pick(now),
        }
    }

    /// Hands over what was counted since the last time. Only one flusher may run at a time.
    pub(crate) fn drain(&self, mut take: impl FnMut(u64, u64)) {
        for (cell, taken) in self.cells.iter().zip(&self.taken) {
            let count = cell.count.load(Ordering::Relaxed);
            let more = count - taken.swap(count, Ordering::Relaxed);
            if more > 0 {
                take(cell.fingerprint.load(Ordering::Acquire), more);
            }
        }
    }

    #[inline(never)]
    fn count_in_neighbour(&self, fingerprint: u64) -> bool {
        self.neighbours(fingerprint).find(|cell| cell.holds(fingerprint)).map(Cell::add_one).is_some()
    }

    fn neighbours(&self, fingerprint: u64) -> impl Iterator<Item = &Cell> {
        (0..PROBES).map(move |step| self.cell(fingerprint, step))
    }

    #[inline]
    fn cell(&self, fingerprint: u64, step: usize) -> &Cell {
        &self.cells[((fingerprint >> 32) as usize + step) & (CELLS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_handed_over_once() {
        let lane = Lane::new();
        let print = 7 << 32 | 5;
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
