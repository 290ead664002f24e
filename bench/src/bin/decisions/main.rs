//! Decisions in memory, side by side with `governor`: nanoseconds of CPU per decision and bytes per key.
//!
//! `cargo run --profile dist -p spile-bench --bin decisions [-- --quick]`. Both sides get the same String keys in the
//! same random order, in alternating rounds of one process; the figure is the median round.

mod round;
mod subjects;

use std::alloc::System;

use cap::Cap;
use spile_bench::{Table, median};

use crate::round::{Round, keys};
use crate::subjects::{
    Governor, GovernorCoarse, GovernorStd, SpileCheck, SpileLimiter, SpileStore, SpileTryAllow,
    SpileWholeCheck, Subject,
};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sizes: &[usize] = if quick { &[1, 1_000, 1_000_000] } else { &[1, 1_000, 1_000_000, 10_000_000] };
    let mut table = Table::new(&[
        "keys",
        "threads",
        "who",
        "ns/decision",
        "speed of governor",
        "of the store's time",
        "bytes/key",
    ]);
    for &size in sizes {
        let (first, later) = (keys(size, 1), keys(size, 2));
        for threads in [1, 2] {
            let round = Round { first: &first, keys: &later, threads, decisions: size.max(2_000_000) };
            for line in compare(&round, if quick { 3 } else { 5 }) {
                table.row([size.to_string(), threads.to_string()].into_iter().chain(line));
            }
            eprintln!("{size} keys, {threads} thread(s): done");
        }
    }
    println!("{table}");
}

/// Who is compared. Speeds are ratios to governor's fastest exact configuration, times to those of the store alone.
const SUBJECTS: [fn(usize) -> Box<dyn Subject>; 8] = [
    GovernorStd::boxed,
    Governor::boxed,
    GovernorCoarse::boxed,
    SpileStore::boxed,
    SpileTryAllow::boxed,
    SpileLimiter::boxed,
    SpileCheck::boxed,
    SpileWholeCheck::boxed,
];
const BASELINE: usize = 1;
const STORE: usize = 3;

/// One row per subject.
fn compare(round: &Round<'_>, rounds: usize) -> Vec<[String; 5]> {
    let mut subjects: Vec<(Box<dyn Subject>, usize)> = Vec::new();
    // The last two hold a million keys at most.
    let count = SUBJECTS.len() - 2 * usize::from(round.keys.len() > 1_000_000);
    for make in &SUBJECTS[..count] {
        let before = ALLOCATED.allocated();
        let subject = make(round.keys.len());
        subject.fill(round.first);
        let bytes = ALLOCATED.allocated() - before;
        subjects.push((subject, bytes));
    }
    let mut times = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for (times, (subject, _)) in times.iter_mut().zip(&subjects) {
            times.push(round.run(&**subject));
        }
    }
    let row = |(at, (subject, bytes)): (usize, &(Box<dyn Subject>, usize))| {
        // The ratio of each round, because a busy machine slows the neighbours of a round alike.
        let ratio = |of: &[f64], to: &[f64]| median(of.iter().zip(to).map(|(of, to)| of / to).collect());
        let of_store = ratio(&times[at], &times[STORE]);
        let per_key = *bytes as f64 / round.keys.len() as f64;
        [
            subject.name().to_owned(),
            format!("{:.1}", median(times[at].clone())),
            format!("{:.2}x", ratio(&times[BASELINE], &times[at])),
            if at < STORE { "-".to_owned() } else { format!("{of_store:.2}x") },
            if round.keys.len() < 1_000 { "-".to_owned() } else { format!("{per_key:.0}") },
        ]
    };
    subjects.iter().enumerate().map(row).collect()
}
