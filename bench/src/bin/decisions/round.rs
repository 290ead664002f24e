//! One timed round: every thread walks its part of the keys, over and over.

use std::sync::Barrier;
use std::thread;

use spile_bench::thread_cpu_ns;

use crate::subjects::Subject;

/// What one round does.
pub(crate) struct Round<'a> {
    /// The order in which keys are first seen.
    pub(crate) first: &'a [String],
    /// The order in which they come back.
    pub(crate) keys: &'a [String],
    pub(crate) threads: usize,
    pub(crate) decisions: usize,
}

impl Round<'_> {
    /// Nanoseconds of CPU time per decision and thread. Wall time would also tell of other work on the machine.
    pub(crate) fn run(&self, subject: &dyn Subject) -> f64 {
        let per_thread = self.decisions / self.threads;
        let start = Barrier::new(self.threads);
        let total: f64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (start, keys) = (&start, self.keys);
                    let offset = thread * keys.len() / self.threads;
                    scope.spawn(move || {
                        start.wait();
                        let began = thread_cpu_ns();
                        subject.decide(keys, offset, per_thread);
                        (thread_cpu_ns() - began) / per_thread as f64
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
        });
        total / self.threads as f64
    }
}

/// Keys as callers have them, shuffled by the seed. Walking them in this order keeps the caller's strings near in
/// memory, so that the figure is the limiter's and not theirs; what a limiter keeps of them was laid down in the
/// order of another seed.
pub(crate) fn keys(count: usize, seed: u64) -> Vec<String> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15u64 ^ seed;
    for last in (1..count).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers.swap(last, (state % (last as u64 + 1)) as usize);
    }
    numbers.into_iter().map(|number| format!("user:{number:08}")).collect()
}
